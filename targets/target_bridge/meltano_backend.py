"""Meltano's state backend over the commit logs of a bucket: `state_backend.uri: bridge+s3://bucket/prefix`.

Meltano loads it by its entry points (`meltano.state_backends`), one for each kind of bucket. The credentials are those
of the store's own variables, such as `AWS_*`.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import click
from meltano.core.error import MeltanoError
from meltano.core.project import Project
from meltano.core.state_store.base import MeltanoState, StateIDLockedError, StateStoreManager

from bridge.errors import BridgeError, CommitLost, PipelineHeld
from bridge.lake.storage import open_storage
from target_bridge.stored_states import StoredStates, held_by

_SCHEME = "bridge+"
_STATE = "singer_state"


class BridgeStateStore(StateStoreManager):  # type: ignore[misc]
    """STATEs as commits: with compare and swap, a history, and in the lake of `target-bridge` with their rows."""

    label = "singer-bridge"

    def __init__(self, uri: str, **options: Any) -> None:
        super().__init__(**options)
        address, _, query = uri.removeprefix(_SCHEME).partition("?")
        named = [name for text in parse_qs(query).get("loaders", []) for name in text.split(",") if name]
        bucket = address if "://" in address and not address.startswith("file://") else _folder(address)
        self._states = StoredStates(open_storage(bucket), tuple(named) or ("target-bridge",))
        self._versions: dict[str, int | None] = {}
        atexit.register(self.close)

    def get(self, state_id: str) -> MeltanoState | None:
        """The STATE from which the next run starts, None without one."""
        with _explained():
            state, version = self._states.read(state_id)
        if state_id in self._versions:
            self._versions[state_id] = version
        return None if state is None else MeltanoState(state_id, {}, {_STATE: state})

    def set(self, state: MeltanoState) -> None:
        """Store a STATE: of a run the one that the target printed, else the one that a person gave."""
        given, before = state.partial_state or {}, state.completed_state or {}
        merged = _merged(before, given)
        if _STATE not in merged:
            raise MeltanoError(
                f"There is no {_STATE} in it", instruction='Give a STATE such as {"singer_state": {"bookmarks": {}}}'
            )
        with _explained():
            if _is_run():
                self._states.follow(state.state_id, (given or before)[_STATE], merged[_STATE])
            else:
                self._states.write(state.state_id, merged[_STATE], self._versions.get(state.state_id))

    def delete(self, state_id: str) -> None:
        """Forget a STATE; the log keeps its history."""
        with _explained():
            self._states.clear(state_id)

    def get_state_ids(self, pattern: str | None = None) -> list[str]:
        """The state IDs that have a STATE."""
        with _explained():
            return sorted(self._states.ids(pattern))

    @contextmanager
    def acquire_lock(self, state_id: str, *, retry_seconds: float) -> Iterator[None]:
        """Between reading and writing a STATE nobody else may change it: then writing raises `StateIDLockedError`.

        Nothing is locked in between, so nothing stays locked after a crash.
        """
        del retry_seconds
        self._versions[state_id] = None
        try:
            yield
        finally:
            del self._versions[state_id]

    def close(self) -> None:
        """End the run's hold on its STATEs."""
        self._states.close()


def _folder(address: str) -> str:
    """A folder's path; a relative one is in the project."""
    path = Path(address.removeprefix("file:").removeprefix("//"))
    return str(path if path.is_absolute() else Path(Project.find().root) / path)


def _is_run() -> bool:
    """Whether a run of Meltano stores what a target printed, and not a person with `meltano state`."""
    context = click.get_current_context(silent=True)
    return context is not None and " state" not in f" {context.command_path}"


def _merged(below: Any, above: Any) -> Any:
    """Merge one payload into another as Meltano does, at any depth of objects."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}


@contextmanager
def _explained() -> Iterator[None]:
    """Raise our errors as Meltano's own, with what to do."""
    try:
        yield
    except PipelineHeld as error:
        raise StateIDLockedError(held_by(error)) from error
    except CommitLost as error:
        raise StateIDLockedError("Somebody changed this STATE meanwhile: do it again") from error
    except BridgeError as error:
        raise MeltanoError(error.message, instruction=error.hint or None) from error
