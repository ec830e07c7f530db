"""A pipeline's STATE for other programs: read it, set bookmarks, compare and swap. No update is ever lost.

```
write:  lease (a run that has it refuses us; other writers are waited for)
        -> recover, honour an edited state.json -> change the STATE that is there now -> commit n + 1 by put-if-absent
```
The lease puts writers in a queue; the commit number decides. A writer that loses the number reads and tries again, at
most five times in all. A write is a commit of kind `state`. When a method returns, it is durable, and the next run
starts from it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

from bridge.errors import CommitLost, PipelineHeld, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.commit.state_file import read_state_file
from bridge.lake.lease import holder, last_lease
from bridge.lake.log import Log
from bridge.lake.run_status import current, last_run
from bridge.lake.runs import any_run, counted_ids
from bridge.lake.storage import Storage, lake_of, open_storage
from bridge.lake.stream_files import StreamFiles
from bridge.protocol.singer.state import bookmark
from bridge.protocol.singer.state_edits import plain, same, with_bookmarks, without_bookmarks
from bridge.settings.load import read_settings
from bridge.settings.values.checked import pipeline_name
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options

_RUNS_BACK = 100
_TRIES = 5
_FIRST_PAUSE = 0.05
"""The longest pause before the second try, in seconds; doubled for each later one. A random part of it is waited."""
_SUCH_AS = 'such as {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 5}}}'


@dataclass(frozen=True, slots=True)
class Stored:
    """The STATE that the next run would start from, as of commit `version`; None before there is any.

    `edited`: somebody wrote it into `state.json` by hand, and no commit has it yet.
    """

    version: int
    state: Any
    edited: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write. `version` is the commit; if the STATE did not change, nothing was committed."""

    version: int
    before: Any
    after: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LastRun:
    """How the last run ended: `success`, `failed`, `interrupted`, or `died` without a result; or it is still `running`.

    `info` is its whole record: streams with their rows, seconds, warnings, the error with its hint.
    """

    run_id: str
    status: str
    info: dict[str, Any]


class StateStore:
    """The STATE of one pipeline in one bucket.

    It is identified by the bucket and the pipeline's full name, which begins with the environment, if any: two
    pipelines, or two environments of one, never share a STATE. Fractions are read as `decimal.Decimal`, so that no
    digit is lost. If the log or `state.json` is damaged, reading raises `CorruptLake`; it never returns an empty STATE
    instead. Writing raises `PipelineHeld` while a run is alive, and `SettingsError` for what a flat STATE cannot do.
    """

    def __init__(
        self,
        bucket: str | os.PathLike[str],
        pipeline: str,
        *,
        environment: str | None = None,
        s3: S3Options | None = None,
        azure: AzureOptions | None = None,
        gcs: GcsOptions | None = None,
    ) -> None:
        """Nothing is read or created until a method is called."""
        storage = open_storage(os.fspath(bucket), s3 or azure or gcs)
        self._open(storage, f"{environment}.{pipeline}" if environment else pipeline)

    @classmethod
    def from_file(
        cls,
        file: str | os.PathLike[str] = "bridge.yaml",
        pipeline: str | None = None,
        *,
        environment: str | None = None,
    ) -> StateStore:
        """The store of a pipeline of a settings file; without a name, of the only one.

        Its source is not read, so no variable that only the tap needs has to be set. `environment`: by default what
        `SINGER_BRIDGE_ENV` says. Raises `SettingsError`.
        """
        chosen = read_settings(Path(file), environment).pipeline(pipeline, source=False)
        return cls.at(lake_of(chosen.destination), chosen.name)

    @classmethod
    def at(cls, storage: Storage, pipeline: str) -> StateStore:
        """The store of a pipeline by its full name in a bucket that is open already."""
        store = cls.__new__(cls)
        store._open(storage, pipeline)
        return store

    def _open(self, storage: Storage, name: str) -> None:
        if wrong := pipeline_name(name):
            raise SettingsError(wrong[0], hint=wrong[1], name=name)
        self.pipeline, self._storage, self._log = name, storage, Log(storage, name)

    def __repr__(self) -> str:
        return f"StateStore({self._storage.uri!r}, {self.pipeline!r})"

    # reading

    @property
    def version(self) -> int:
        """The number of the last commit, 0 before the first."""
        return self._log.latest()

    def read(self) -> Stored:
        """The STATE together with its version, for `compare_and_swap`."""
        while True:
            head = self._log.latest()
            state = self._state_at(head)
            file = read_state_file(self._storage, self.pipeline)
            died = last_lease(self._storage, self.pipeline).get("closed") is None
            if file.compare(self._log, head, state, died=died) != "edited":
                return Stored(head, state)
            if self._log.latest() == head and read_state_file(self._storage, self.pipeline) == file:
                return Stored(head, file.edited(self._storage, self.pipeline), edited=True)

    def get(self, stream: str | None = None) -> Any:
        """The STATE, or a stream's bookmark; None if there is none."""
        state = self.read().state
        return state if stream is None else bookmark(state, stream)

    def last_run(self) -> LastRun | None:
        """The run that holds the pipeline, else the last one; None if there was none."""
        record = last_run(self._storage, self.pipeline)
        return LastRun(record.run_id, record.status, record.stored) if record else None

    def last_status(self, stream: str) -> str | None:
        """How the last run that loaded a stream ended for it; None if none of the last 100 did.

        `success`: all that the tap sent of it is committed, whatever became of the rest of that run. `held`: its rows
        were left out. Else the status of the run; `incomplete`, if that succeeded and had not all of the stream. A run
        that left the stream out, as `--resume` does, does not count.
        """
        for run in counted_ids(self._storage, self.pipeline)[:_RUNS_BACK]:
            record = any_run(self._storage, self.pipeline, run)
            record = record and current(self._storage, record)
            if record and (result := record.streams.get(stream)):
                if result.complete or result.held_back:
                    return "success" if result.complete else "held"
                return "incomplete" if record.status == "success" else record.status
        return None

    # writing

    def set(self, stream: str, bookmark: Any, *, reason: str = "StateStore.set") -> int:
        """Set one stream's bookmark and return the version."""
        return self.set_many({stream: bookmark}, reason=reason)

    def set_many(self, bookmarks: Mapping[str, Any], *, reason: str = "StateStore.set_many") -> int:
        """Set the bookmarks of several streams in one commit and return the version; others keep theirs."""
        return self.update(lambda state: with_bookmarks(state, bookmarks), reason=reason).version

    def clear(self, *streams: str, reason: str = "StateStore.clear") -> int:
        """Forget the bookmarks of these streams, or of all, and return the version: they start from the beginning."""
        if not streams:
            return self.replace({}, reason=reason)
        return self.update(lambda state: without_bookmarks(state, streams), reason=reason).version

    def replace(self, state: Any, *, reason: str = "StateStore.replace") -> int:
        """Replace the whole STATE, whatever it is now, and return the version."""
        return self.update(lambda _: state, reason=reason).version

    def update(self, change: Callable[[Any], Any], *, reason: str = "StateStore.update") -> Written:
        """Commit what `change` makes of the STATE that is there now; None stands for no STATE yet.

        `change` is called while the pipeline is held, and again after each lost number. So it should be quick, and must
        not write to the store. It must return a new value, and not change its argument.
        """
        pause = _FIRST_PAUSE
        for _ in range(_TRIES - 1):
            with suppress(CommitLost):
                return self._write(change, reason)
            time.sleep(SystemRandom().uniform(pause / 2, pause))  # apart from each other, not secret
            pause *= 2
        return self._write(change, reason)

    def compare_and_swap(
        self, expected_version: int, state: Any, *, reason: str = "StateStore.compare_and_swap"
    ) -> int:
        """Replace the STATE if it is still that of `expected_version`, and return the new version.

        Raises `CommitLost` if anybody committed since; then read again. Fences do not count: a writer creates one after
        the writer before it has died.
        """
        return self._write(lambda _: state, reason, expected_version).version

    def refuse_if_held(self) -> None:
        """Raise `PipelineHeld` now if a run is alive, before a person spends time on a change."""
        held = holder(self._storage, self.pipeline)
        if held and not held.get("brief"):
            hint = "wait for it to end; `singer-bridge runs list` shows it"
            raise PipelineHeld("a run holds this pipeline", hint=hint, run=held.get("run"), pid=held.get("pid"))

    def _write(self, change: Callable[[Any], Any], reason: str, expected: int | None = None) -> Written:
        with open_pipeline(self._storage, self.pipeline, brief=True) as committer:
            snapshot, before = committer.snapshot, committer.snapshot.state
            outcome = self._changed(committer, change, expected)
            if not isinstance(outcome, Exception) and not same(before, outcome):
                committer.set_state(outcome, reason)
                StreamFiles(committer.log, snapshot).follow(committer.snapshot)
        if isinstance(outcome, Exception):
            raise outcome  # outside of the block: nothing was begun, so the lease closes cleanly
        return Written(committer.snapshot.n, before, outcome, tuple(committer.notes))

    def _changed(self, committer: Committer, change: Callable[[Any], Any], expected: int | None) -> Any:
        """The STATE to commit, or the error that prevents the commit."""
        if expected is not None and not self._is_still(committer, expected):
            hint = "read it again, look at what changed, and decide anew"
            return CommitLost("the STATE is not that version any more", hint=hint, expected=expected, now=self.version)
        try:
            after = plain(change(committer.snapshot.state))
        except Exception as error:  # noqa: BLE001 - the caller's own code; raised again in `_write`
            return error
        if after is None:
            return SettingsError("null is no STATE", hint="to start from the beginning, clear it")
        if not isinstance(after, dict) and not same(after, committer.snapshot.state):
            return SettingsError("a STATE is a JSON object", hint=_SUCH_AS)
        return after

    def _is_still(self, committer: Committer, expected: int) -> bool:
        """Whether only fences came after that version."""
        newest = next((record.n for record in self._log.history(committer.snapshot.n, fences=False)), 0)
        return newest <= expected <= committer.snapshot.n

    def _state_at(self, head: int) -> Any:
        return next(self._log.history(head)).state if head else None
