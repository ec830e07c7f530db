"""`state.json`: the last STATE as plain JSON. Whoever edits it by hand changes the STATE.

`published.json` beside it is the witness, {format, commit, digest}: bytes of `state.json` that have this digest are
ours, and are brought up to the head. A commit writes first `state.json`, then `published.json`, each by its version.
So before a commit is created, `published.json` is always true of the `state.json` that this run has seen. An opening:

| finds `state.json`                       | that was                                           | and does           |
|------------------------------------------|----------------------------------------------------|--------------------|
| not there                                | never written, or deleted                          | writes it          |
| with the head's STATE                    | in order, or a kill between the two                | notes its digest   |
| with the digest                          | a kill before it; our bytes, put back by hand      | writes it          |
| as a run that slept may have written it  | that run, killed before it noticed: `_is_late`     | writes it          |
| with anything else, an earlier STATE too | a person                                           | commits that STATE |

- In this order a kill between the two leaves the head's STATE, which needs no witness. The other way round it would
  leave an earlier STATE without one.
- A put whose outcome is unknown ends the run: it is a kill before or after that put, or a run that sleeps.
- A run that slept through its replacement finds one of the two changed, for `published.json` has the head's number in
  it, and an opening after a death always writes it. If the bytes of `state.json` had come back meanwhile, it writes its
  STATE and ends at `published.json`: the next commit or opening writes over that. It is not undone: by then the same
  bytes may be another run's, and right.
- A hand edit that lands while a run goes on is kept as `state.json.edited`; if the run dies first, it counts.
- Lakes of older versions have no `published.json`: after a death the STATE before the head's is ours.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from bridge.commit.head import Head
from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Log, meta
from bridge.singer.state_edits import Difference, differences, same
from bridge.storage import Storage
from bridge.storage.attempts import attempts

_MOST_NAMED = 3
"""Bookmarks that a note names."""
_WIDEST = 40
"""Characters of a bookmark in a note."""

Found = Literal["absent", "current", "behind", "edited"]


@dataclass(frozen=True, slots=True)
class StateFile:
    """`state.json` and its witness, as they are in the bucket now."""

    data: bytes | None
    witness: bytes | None

    def state(self, storage: Storage, pipeline: str) -> Any:
        """What it says, None for no file. Raises `CorruptLake` if it is not JSON."""
        try:
            return None if self.data is None else loads(self.data)
        except NotJson as error:
            hint = _go_on(storage, pipeline)
            raise CorruptLake("state.json is not JSON", hint=hint, file=state_key(pipeline)) from error

    def edited(self, storage: Storage, pipeline: str) -> Any:
        """What a person wrote. Raises `CorruptLake` if it is no STATE."""
        state = self.state(storage, pipeline)
        if not isinstance(state, dict):
            hint = _go_on(storage, pipeline)
            raise CorruptLake("state.json is not a JSON object", hint=hint, file=state_key(pipeline))
        return state

    def is_noted(self) -> bool:
        """Whether the witness is of these bytes."""
        return self.data is not None and self.published()[1] == _digest(self.data)

    def is_of(self, n: int) -> bool:
        """Whether commit `n` or a later one wrote it, as far as the witness knows; without one it may be."""
        return self.witness is None or self.published()[0] >= n

    def compare(self, log: Log, n: int, state: Any, *, died: bool) -> Found:
        """Compare it with `state`, the STATE after commit `n`, the last one. `died`: the last run did not end well.

        Raises `CorruptLake` if it is not JSON.
        """
        if (existing := self.state(log.storage, log.pipeline)) is None:
            return "absent"
        if same(existing, state):
            return "current"
        if self.is_noted() or (died and self._is_one_behind(log, n, state, existing)):
            return "behind"
        return "behind" if _is_late(log, n, state, existing) else "edited"

    def published(self) -> tuple[int, str]:
        """The commit and the digest of the witness; of none if it is not there, or damaged."""
        try:
            published = loads(self.witness or b"{}")
            return int(published["commit"]), str(published["digest"])
        except (NotJson, KeyError, TypeError, ValueError):
            return 0, ""

    def _is_one_behind(self, log: Log, n: int, state: Any, existing: Any) -> bool:
        """Whether it has the last STATE that differs from the head's and was not taken back, where no witness is."""
        below = n + 1
        for record in log.history(n, fences=False):
            if record.n < below and record.state != state:
                return bool(existing == record.state) and self.published()[0] < record.n
            below = below if record.voids is None else min(below, record.voids)
        return False


def _is_late(log: Log, n: int, state: Any, existing: Any) -> bool:
    """Whether a run that slept may have written this STATE since the last commit, `n`.

    That is the STATE of the last commit of a run that was replaced, and the one before it is the head's once more: only
    then could its swap find the bytes that it had seen.
    """
    replaced = after_it = False
    for record in log.history(n):
        if record.state == existing:
            replaced = replaced or after_it
        elif replaced and record.state == state:
            return True
        else:
            replaced = False
        after_it = record.kind == "fence"
    return replaced and state is None


def state_key(pipeline: str) -> str:
    """The key of `state.json`."""
    return meta(pipeline, "state.json")


def _witness_key(pipeline: str) -> str:
    return meta(pipeline, "published.json")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_state_file(storage: Storage, pipeline: str) -> StateFile:
    """Read it without noting versions: for those who do not write."""
    witness = storage.read(_witness_key(pipeline))
    return StateFile(storage.read(state_key(pipeline)), witness)


def look_at_state_file(head: Head) -> StateFile:
    """Read it for writing. Raises `CommitLost` if another run took over."""
    # The witness first: a run that is only slow may write both between the two looks, and then the file is the head's.
    witness = head.look(_witness_key(head.log.pipeline))
    return StateFile(head.look(state_key(head.log.pipeline)), witness)


def write_state(head: Head) -> list[str]:
    """Have `state.json` say what the head does; return what the operator should know.

    Raises `CommitLost` if another run took over.
    """
    key, data, notes = state_key(head.log.pipeline), dumps(head.view.state, indent=2), list[str]()
    for _ in attempts(key):
        if head.swap(key, data):
            break
        if (other := head.look(key)) is not None:
            head.storage.write(f"{key}.edited", other)
            notes = ["state.json was edited by hand while a run went on: that is now state.json.edited"]
    note_published(head, data)
    return notes


def note_published(head: Head, data: bytes) -> None:
    """Note that these bytes of `state.json` are ours. Raises `CommitLost` if another run took over."""
    key = _witness_key(head.log.pipeline)
    published = dumps({"format": 1, "commit": head.view.n, "digest": _digest(data)})
    for _ in attempts(key):
        if head.swap(key, published):
            return
        head.look(key)


def edit_note(before: Any, after: Any) -> str:
    """What a run says, which starts from `after`, the STATE that somebody wrote by hand."""
    changes = differences(before, after)
    marks = [_mark(one) for one in changes[:_MOST_NAMED]]
    if more := len(changes) - len(marks):
        marks.append(f"{more} more")
    return f"state.json was edited by hand: starting from {', '.join(marks)}; rows since then come again"


def _mark(change: Difference) -> str:
    if change.part == "STATE":  # the whole of it is another one
        return _cut(dumps(change.after).decode().strip())
    return f"{change.part} {short_bookmark(change.after) or 'from the beginning'}"


def short_bookmark(value: Any) -> str:
    """A bookmark's value, cut to a width; the whole bookmark where it has several values."""
    if isinstance(value, dict) and value.get("replication_key_value") is not None:
        value = value["replication_key_value"]
    elif isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return _cut(value if isinstance(value, str) else "" if value is None else dumps(value).decode().strip())


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _go_on(storage: Storage, pipeline: str) -> str:
    """How a `state.json` that nobody can use is got rid of: it is only a copy."""
    file = shlex.quote(f"{storage.uri}/{state_key(pipeline)}")
    return f"rm {file}; the commit log brings back the last STATE"
