"""`state.json`: the last STATE as plain JSON, for people. If somebody edits it, the next run starts from the edit.

So an opening must tell our own bytes from a person's. That is what the second file is for, the witness
`published.json`: {format, commit, digest}. The digest is that of the `state.json` that we wrote last. A `state.json`
with this digest is ours, and the opening may replace it by the STATE of the head, the last commit.

After each commit a run writes `state.json`, then the witness. Both writes are swaps: each fails if the file is no
longer the version that the run has seen. So when the next commit is created, the witness fits the `state.json` that
this run has seen. What an opening does:

| it finds `state.json`                     | because of                                        | and it             |
|-------------------------------------------|---------------------------------------------------|--------------------|
| absent                                    | no commit yet, or somebody deleted it             | writes the head's  |
| with the head's STATE                     | a clean end, or a kill between the two writes     | notes its digest   |
| with the digest of the witness            | a kill before the next write; our bytes, restored | writes the head's  |
| as a suspended run may have written it    | that run, killed before it noticed: `_is_late`    | writes the head's  |
| with any other STATE, even an earlier one | a person                                          | commits that STATE |

- `state.json` is written first, because a kill between the two writes then leaves the head's STATE, and that needs no
  witness. The other order would leave an earlier STATE that no witness knows.
- If the outcome of a put is unknown, the run ends. For the next opening this is a kill before or after the put.
- A run may be suspended while another one takes over. It can then swap at most one of the files, as an opening after a
  death always writes a new witness, with the number of the head. It does swap `state.json` if that happens to have the
  same bytes again as before. Then it fails at the witness, and the next commit or opening replaces its STATE. The run
  itself must not undo its swap: by then another run may have written the same bytes, and rightly.
- If a person edits the file during a run, the run saves the edit as `state.json.edited` and writes its own STATE. If
  the run dies before that, the edit counts.
- Lakes of older versions have no witness. There, after a death, the STATE before the head's is taken for ours.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, as_number, dumps, loads
from bridge.lake.commit.head import Head
from bridge.lake.log import Log
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.lake.storage.attempts import attempts
from bridge.protocol.singer.moves import short_bookmark, shortened
from bridge.protocol.singer.state_edits import StateDifference, differences, same

_MOST_NAMED = 3
"""Bookmarks that a note names."""
Comparison = Literal["absent", "current", "behind", "edited"]


@dataclass(frozen=True, slots=True)
class StateFile:
    """`state.json` and its witness, as they are in the bucket now."""

    data: bytes | None
    witness: bytes | None

    def state(self, storage: Storage, pipeline: str) -> Any:
        """The STATE in it; None if there is no file. Raises `CorruptLake` if it is not JSON."""
        try:
            return None if self.data is None else loads(self.data)
        except NotJson as error:
            hint = _go_on(storage, pipeline)
            raise CorruptLake("state.json is not JSON", hint=hint, file=state_key(pipeline)) from error

    def edited(self, storage: Storage, pipeline: str) -> Any:
        """The STATE that a person wrote. Raises `CorruptLake` if it is not a JSON object."""
        state = self.state(storage, pipeline)
        if not isinstance(state, dict):
            hint = _go_on(storage, pipeline)
            raise CorruptLake("state.json is not a JSON object", hint=hint, file=state_key(pipeline))
        return state

    def is_noted(self) -> bool:
        """Whether the witness has the digest of these bytes."""
        return self.data is not None and self.published()[1] == _digest(self.data)

    def is_of(self, n: int) -> bool:
        """Whether commit `n` or a later one may have written it: the witness says so, or is absent."""
        return self.witness is None or self.published()[0] >= n

    def compare(self, log: Log, n: int, state: Any, *, died: bool) -> Comparison:
        """Compare it with `state`, the STATE after the last commit, `n`. `died`: the last run did not close cleanly.

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
        """The commit and the digest in the witness; 0 and empty if it is absent or damaged."""
        try:
            published = loads(self.witness or b"{}")
            return as_number(published["commit"]), str(published["digest"])
        except (NotJson, KeyError, TypeError, ValueError):
            return 0, ""

    def _is_one_behind(self, log: Log, n: int, state: Any, existing: Any) -> bool:
        """Whether `existing` is the STATE before the head's (voided commits left out), and the witness is older."""
        below = n + 1
        for record in log.history(n, fences=False):
            if record.n < below and record.state != state:
                return bool(existing == record.state) and self.published()[0] < record.n
            below = below if record.voids is None else min(below, record.voids)
        return False


def _is_late(log: Log, n: int, state: Any, existing: Any) -> bool:
    """Whether a run that was suspended may have written this STATE after the last commit, `n`.

    Two things must hold. It is the STATE of the last commit of a run that was replaced. And the STATE before that
    commit is the head's again: otherwise `state.json` had other bytes than that run had seen, and its swap failed.
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
    return pipeline_key(pipeline, "state.json")


def _witness_key(pipeline: str) -> str:
    return pipeline_key(pipeline, "published.json")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_state_file(storage: Storage, pipeline: str) -> StateFile:
    """Read both files without noting their versions, for readers."""
    witness = storage.read(_witness_key(pipeline))
    return StateFile(storage.read(state_key(pipeline)), witness)


def look_at_state_file(head: Head) -> StateFile:
    """Read both files and note their versions, for a writer. Raises `CommitLost` if another run took over."""
    # The witness first: if a slow run writes both files between the two reads, we see the head's STATE, which needs no
    # witness.
    witness = head.look(_witness_key(head.log.pipeline))
    return StateFile(head.look(state_key(head.log.pipeline)), witness)


def write_state(head: Head) -> list[str]:
    """Write the head's STATE, then the witness; return notes. Raises `CommitLost` if another run took over."""
    key, data, notes = state_key(head.log.pipeline), dumps(head.snapshot.state, indent=2), list[str]()
    for _ in attempts(key):
        if head.swap(key, data):
            break
        if (other := head.look(key)) is not None:
            head.storage.write(f"{key}.edited", other)
            notes = ["state.json was edited by hand while a run went on: that is now state.json.edited"]
    note_published(head, data)
    return notes


def note_published(head: Head, data: bytes) -> None:
    """Write the witness: these bytes of `state.json` are ours. Raises `CommitLost` if another run took over."""
    key = _witness_key(head.log.pipeline)
    published = dumps({"format": 1, "commit": head.snapshot.n, "digest": _digest(data)})
    for _ in attempts(key):
        if head.swap(key, published):
            return
        head.look(key)


def edit_note(before: Any, after: Any) -> str:
    """The note of a run that starts from `after`, the STATE that somebody wrote by hand."""
    changes = differences(before, after)
    marks = [_mark(one) for one in changes[:_MOST_NAMED]]
    if more := len(changes) - len(marks):
        marks.append(f"{more} more")
    return f"state.json was edited by hand: starting from {', '.join(marks)}; rows since then come again"


def _mark(change: StateDifference) -> str:
    if change.part == "STATE":  # the STATE as a whole was replaced
        return shortened(change.after)
    return f"{change.part} {short_bookmark(change.after) or 'from the beginning'}"


def _go_on(storage: Storage, pipeline: str) -> str:
    """The hint for an unusable `state.json`: delete it, as it is only a copy."""
    file = shlex.quote(f"{storage.uri}/{state_key(pipeline)}")
    return f"rm {file}; the commit log brings back the last STATE"
