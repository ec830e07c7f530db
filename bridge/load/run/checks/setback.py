"""Refuses a piped tap that starts after a STATE to which somebody has set the lake back: rows between would be missing.

The program that starts the tap keeps a STATE of its own, and does not hear of a `rollback`, a `state set` or an edit.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import UNSET

from bridge.errors import SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.log import bookmarks
from bridge.lake.records import CommitRecord
from bridge.lake.runs import Difference
from bridge.protocol.singer.order import streams_ahead
from bridge.protocol.singer.state import is_empty
from bridge.protocol.singer.state_edits import same

_MOST_RECORDS = 1000
"""Records that a look goes back. A STATE that is older counts as unknown."""
ACCEPT = "on_missing_rows: warn"
"""The setting of `target-bridge` with which the run goes on."""


@dataclass(frozen=True, slots=True)
class Setback:
    """A STATE that was the lake's at commit `n`, and that commit `by` has taken back. `streams`: those concerned."""

    n: int
    by: CommitRecord
    streams: tuple[str, ...]

    @property
    def what(self) -> str:
        """The setback, in a sentence."""
        if self.by.kind == "rollback":
            return f"the tap was started from the STATE of commit {self.n}, which the rollback {self.by.n} took back"
        return f"the tap was started from the STATE of commit {self.n}, and commit {self.by.n} set it back since"

    def error(self, pipeline: str, bucket: str) -> SettingsError:
        """The refusal, with both ways out."""
        hint = f"{set_back(f'--to {shlex.quote(bucket)} --name {pipeline}')}\nor leave the rows out: {ACCEPT}"
        return SettingsError(f"{self.what}: {self._rows} would be missing", hint=hint, streams=", ".join(self.streams))

    def differences(self) -> list[Difference]:
        """The difference that each stream has if the run goes on."""
        text = f"{self._rows} are missing: {self.what}. To have them, set the STATE back where the tap is started"
        return [Difference(stream, "missing_rows", text) for stream in self.streams]

    @property
    def _rows(self) -> str:
        return "rows between" if self.by.kind == "rollback" else "rows that were to come again"


def set_back(chosen: str) -> str:
    """How to give the lake's STATE to another program. `chosen` is what to type to choose the pipeline."""
    return (
        f"set back the STATE of the program that starts the tap: singer-bridge state get {chosen} > state.json\n"
        f"in Meltano: singer-bridge state export {chosen} --format meltano -o state.json; "
        "meltano state set --force STATE_ID --input-file state.json"
    )


def find_setback(committer: Committer, state: Any) -> Setback | None:
    """The setback, if this is a STATE of the lake that somebody has taken back. None, too, where that is not known."""
    head = committer.snapshot
    if is_empty(state) or same(head.state, state):
        return None
    rollback: CommitRecord | None = None
    by_hand: CommitRecord | None = None
    for looked, record in enumerate(committer.log.history(head.n)):
        if looked == _MOST_RECORDS:
            return None
        if rollback and record.n > (rollback.to or 0):  # it was taken back
            if same(record.state, state):
                return _setback(committer, record.n, rollback, state)
        elif _has(record, state):
            return _setback(committer, record.n, by_hand, state) if by_hand else None
        elif record.kind == "rollback":
            rollback = record
        elif record.kind == "state":
            by_hand = by_hand or record
    return None


def _has(record: CommitRecord, state: Any) -> bool:
    """Whether the lake had this STATE, or a run was allowed to start from it."""
    return same(record.state, state) or (record.given is not UNSET and same(record.given, state))


def _setback(committer: Committer, n: int, by: CommitRecord, state: Any) -> Setback | None:
    """The setback, None if the lake has come as far again. Opaque positions cannot tell: then the log's order does."""
    now = committer.snapshot.state
    ahead = streams_ahead(now, state)
    if ahead is None and not by.supersedes and _is_earlier(committer, n, by, now):
        ahead = sorted(bookmarks(state))
    return Setback(n, by, tuple(ahead)) if ahead else None


def _is_earlier(committer: Committer, n: int, by: CommitRecord, now: Any) -> bool:
    """Whether the STATE of now was the lake's before commit `n`, or is not known to have moved since the rollback."""
    if by.kind == "rollback":
        return True
    older = islice(committer.log.history(n - 1), _MOST_RECORDS)
    return any(same(record.state, now) for record in older)
