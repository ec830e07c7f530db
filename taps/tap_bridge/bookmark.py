"""Where a stream stands: the commit of which a target has all rows, and how far it is in the next one.

```json
{"version": 1764000000000, "commit": 41, "nonce": "9f2c...", "keys": ["id"],
 "next": {"commit": 42, "nonce": "07aa...", "part": "part-0000000042-000001-....parquet", "rows": 81920,
          "columns": "5d1f..."}}
```
Without `commit` the whole table is on its way, as `next.commit` left it. `rows` of a part are sent already.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from bridge.read.query.changes.change import Position


def readable(state: Any, logger: logging.Logger) -> dict[str, Any]:
    """A STATE with those bookmarks that are ones of ours; each other one is named in the log, and begins anew."""
    bookmarks = state.get("bookmarks") if isinstance(state, dict) else state
    if not isinstance(bookmarks, dict):
        if bookmarks is not None:
            logger.warning("the STATE's bookmarks cannot be read, so each table is sent as a whole")
        return {}
    result = {name: stored for name, stored in bookmarks.items() if Bookmark.read(stored)}
    for name in (name for name, stored in bookmarks.items() if name not in result and stored != {}):
        logger.warning("%s: its bookmark cannot be read, so the whole table is sent", name)
    return {"bookmarks": result}


@dataclass(frozen=True, slots=True)
class Place:
    """So many rows of a part of a commit are sent."""

    at: Position
    part: str = ""
    rows: int = 0
    columns: str = ""
    """A digest of the columns that were sent: which rows a merge changed depends on them."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where a stream stands. `version` is that of its messages; `keys` is what its rows were told apart by."""

    version: int
    complete: Position | None = None
    next: Place | None = None
    keys: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: Any) -> Bookmark | None:
        """The bookmark of a stream in a STATE; None if there is none, or it is none of ours: the stream begins anew."""
        try:
            place = stored.get("next")
            complete = Position(int(stored["commit"]), str(stored["nonce"])) if "commit" in stored else None
            part = None
            if place is not None:
                at = Position(int(place["commit"]), str(place["nonce"]))
                part = Place(at, str(place["part"]), int(place["rows"]), str(place.get("columns", "")))
            if (complete is None and part is None) or (part is not None and part.rows < 0):
                return None
            return cls(int(stored["version"]), complete, part, tuple(stored.get("keys", ())))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            return None

    def stored(self) -> dict[str, Any]:
        """As a STATE has it."""
        complete = {"commit": self.complete.commit, "nonce": self.complete.nonce} if self.complete else {}
        keys = {"keys": list(self.keys)} if self.keys else {}
        if self.next is None:
            return {"version": self.version, **complete, **keys}
        at = self.next.at
        place = {"commit": at.commit, "nonce": at.nonce, "part": self.next.part, "rows": self.next.rows}
        columns = {"columns": self.next.columns} if self.next.columns else {}
        return {"version": self.version, **complete, **keys, "next": place | columns}
