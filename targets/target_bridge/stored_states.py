"""Meltano's STATEs in the commit logs of a bucket: what `meltano_backend.py` makes a state backend of.

A state ID of `target-bridge`, `dev:tap-x-to-target-bridge`, is the log of the lake itself, `dev.tap-x`. There the rows
and their STATE are one commit, made by the target; a run of Meltano that hands over the same STATE changes nothing.
Every other ID has a log of its own, `meltano-state.<ID>`, in which each STATE is a commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

from bridge.errors import PipelineHeld, SettingsError
from bridge.exact_json import dumps
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.presence import pipelines_in
from bridge.lake.state.store import StateStore
from bridge.lake.storage import Storage
from bridge.protocol.singer.state_edits import same
from bridge.settings.values.checked import pipeline_name

_OWN = "meltano-state."
"""How the pipelines begin that hold nothing but a STATE."""
_PLAIN = re.compile(r"[A-Za-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_BACK = 1000
"""Commits of a run among which a STATE is looked for."""


class StoredStates:
    """The STATEs of one bucket by Meltano's state IDs. `loaders` are the names of `target-bridge` in the project."""

    def __init__(self, storage: Storage, loaders: tuple[str, ...] = ("target-bridge",)) -> None:
        self._storage, self._loaders = storage, loaders
        self._held: dict[str, Committer] = {}
        self._open = ExitStack()

    def pipeline(self, state_id: str) -> str:
        """The pipeline whose log holds a STATE. Raises `SettingsError` for an ID that is too long."""
        for loader in self._loaders:
            environment, colon, tap = state_id.removesuffix(f"-to-{loader}").partition(":")
            name = f"{environment}.{tap}"
            if colon and state_id.endswith(f"-to-{loader}") and not pipeline_name(name):
                return name
        name = _OWN + "".join(_escape(character) for character in state_id)
        if pipeline_name(name):
            raise SettingsError("this state ID is too long", hint="it may have about 80 characters", id=state_id)
        return name

    def ids(self, pattern: str | None = None) -> Iterator[str]:
        """Yield the state IDs that have a STATE; `pattern` is a glob."""
        for name in pipelines_in(self._storage):
            state_id = self._state_id(name)
            if state_id and fnmatchcase(state_id, pattern or "*") and StateStore.at(self._storage, name).get():
                yield state_id

    def _state_id(self, pipeline: str) -> str | None:
        """The ID of a pipeline's STATE; None for one that Meltano cannot have made."""
        if pipeline.startswith(_OWN):
            text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), pipeline.removeprefix(_OWN))
            return text.encode("latin-1").decode("utf-8", "replace")
        environment, dot, tap = pipeline.rpartition(".")
        return f"{environment}:{tap}-to-{self._loaders[0]}" if dot else None

    def read(self, state_id: str) -> tuple[Any, int]:
        """The STATE, None without one, and its version for `write`. Raises `LakeError`."""
        name = self.pipeline(state_id)
        if name in self._held:
            snapshot = self._held[name].snapshot
            return _plain(snapshot.state), snapshot.n
        stored = StateStore.at(self._storage, name).read()
        return _plain(stored.state), stored.version

    def write(self, state_id: str, state: Any, version: int | None = None) -> None:
        """Commit a STATE that somebody gave; with `version`, if it is still that one's.

        Raises `PipelineHeld` while a run is alive, `CommitLost` if the STATE is another one by now.
        """
        name, reason = self.pipeline(state_id), f"meltano state: {state_id}"
        store = StateStore.at(self._storage, name)
        if version is None:
            store.replace(state, reason=reason)
        else:
            store.compare_and_swap(version, state, reason=reason)

    def follow(self, state_id: str, printed: Any, state: Any) -> None:
        """Take the STATE of a run: the target `printed` it, and with what was there before it is `state`.

        If the lake's log has it, nothing is done: it is there, or a later one is. Else it is committed, and the ID is
        held for this run until `close`. Raises `PipelineHeld` if another run holds it.
        """
        name = self.pipeline(state_id)
        if not name.startswith(_OWN) and self._is_committed(Log(self._storage, name), printed):
            return
        if name not in self._held:
            self._held[name] = self._open.enter_context(open_pipeline(self._storage, name))
        committer = self._held[name]
        if not same(committer.snapshot.state, state):
            committer.set_state(state, f"meltano run: {state_id}")

    def _is_committed(self, log: Log, printed: Any) -> bool:
        """Whether a STATE is one that the last run committed together with rows."""
        run = None
        for count, record in enumerate(log.history(log.latest(), fences=False)):
            run = run or record.run
            if record.run != run or count == _BACK:
                return False
            if same(_plain(record.state), printed):
                return True
        return False

    def clear(self, state_id: str) -> None:
        """Forget a STATE. Raises `PipelineHeld` while a run is alive."""
        name = self.pipeline(state_id)
        if name in pipelines_in(self._storage):
            StateStore.at(self._storage, name).clear(reason=f"meltano state clear: {state_id}")

    def close(self) -> None:
        """Let go of what is held for this run."""
        self._held.clear()
        self._open.close()


def held_by(error: PipelineHeld) -> str:
    """The message to a user of Meltano when another run holds a STATE: it has no flag that waits."""
    return f"{error.message}; wait for it to end, and do it again"


def _escape(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"_{byte:02x}" for byte in character.encode())


def _plain(state: Any) -> Any:
    """A STATE as Meltano has it: fractions are floats. None for none."""
    return json.loads(dumps(state)) if state else None
