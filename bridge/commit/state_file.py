"""`state.json`: the last STATE as plain JSON, for people and other tools. Who edits it by hand changes the STATE."""

from __future__ import annotations

import shlex
from typing import Any

from bridge.commit.head import Head
from bridge.errors import CorruptLake, LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Log, meta
from bridge.storage import Storage

_TRIES = 20


def state_key(pipeline: str) -> str:
    """Where `state.json` is."""
    return meta(pipeline, "state.json")


def write_state(head: Head) -> list[str]:
    """Have `state.json` say what the head does; return what the operator should know.

    Raises `CommitLost` if another run took over.
    """
    key, notes = state_key(head.log.pipeline), list[str]()
    # A STATE may come back: blanks at its end make the bytes, and so the version, this commit's alone.
    blanks = "".join(" \t"[int(bit)] for bit in f"{head.view.said:b}").encode()
    for _ in range(_TRIES):
        if head.swap(key, dumps(head.view.state, indent=2) + blanks):
            return notes
        if (other := head.look(key)) is not None:
            head.storage.write(f"{key}.edited", other)
            notes = ["state.json was edited by hand while a run went on: that is now state.json.edited"]
    raise LakeError("a file of the lake is changed by somebody all the time", hint="find out by whom", file=key)


def was_said(log: Log, head: int, state: Any) -> bool:
    """Whether a commit up to `head` holds this STATE; one that none holds was written by hand."""
    return any(record.state == state for record in log.history(head, fences=False))


def read_state_file(storage: Storage, pipeline: str) -> Any:
    """What `state.json` says, None if there is none. Raises `CorruptLake` if it is not JSON."""
    return parse_state(storage, pipeline, storage.read(state_key(pipeline)))


def parse_state(storage: Storage, pipeline: str, data: bytes | None) -> Any:
    """What these bytes of `state.json` say, None for none. Raises `CorruptLake` if they are not JSON."""
    if data is None:
        return None
    try:
        return loads(data)
    except NotJson as error:
        hint = _go_on(storage, pipeline)
        raise CorruptLake("state.json is not JSON", hint=hint, file=state_key(pipeline)) from error


def expect_object(storage: Storage, pipeline: str, state: Any) -> None:
    """Raise `CorruptLake` for what was written into `state.json` by hand and is no STATE."""
    if not isinstance(state, dict):
        hint = _go_on(storage, pipeline)
        raise CorruptLake("state.json is not a JSON object", hint=hint, file=state_key(pipeline))


def refuse_older(storage: Storage, pipeline: str) -> LakeError:
    """What a run ends with that finds a STATE of earlier there."""
    hint = f"an older STATE would load rows twice: {_go_on(storage, pipeline)}"
    return LakeError("state.json is older than the lake", hint=hint, file=state_key(pipeline))


def state_before(head: Head) -> Any:
    """The last STATE that differs from the head's and was not taken back."""
    below = head.view.n + 1
    for record in head.log.history(head.view.n, fences=False):
        if record.n < below and record.state != head.view.state:
            return record.state
        below = below if record.voids is None else min(below, record.voids)
    return None


def _go_on(storage: Storage, pipeline: str) -> str:
    """How a `state.json` that nobody can use is got rid of: it is only a copy."""
    file = shlex.quote(f"{storage.uri}/{state_key(pipeline)}")
    return f"rm {file}; the commit log brings back the last STATE"
