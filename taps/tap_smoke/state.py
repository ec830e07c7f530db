"""The STATE as a whole: what was passed in, with the bookmarks of this run laid over it."""

from __future__ import annotations

import copy
from typing import Any

from tap_smoke.config import read_json
from tap_smoke.settings import StateSettings, TapError


class State:
    """Bookmarks of streams that this run does not sync stay as they were passed in."""

    def __init__(self, settings: StateSettings, path: str | None) -> None:
        value = read_json(path, "state") if path else {}
        if not isinstance(value, dict):
            raise TapError("the state must be an object")
        if not isinstance(value.get("bookmarks", {}), dict):
            raise TapError("bookmarks in the state must be an object")
        self.flat = settings.flat
        self.given: dict[str, Any] = value
        self.value: dict[str, Any] = copy.deepcopy(value)

    def bookmark(self, stream: str) -> Any:
        """The bookmark that was passed in for this stream; None if there was none."""
        if not self.flat:
            return self.given.get("bookmarks", {}).get(stream)
        number = self.given.get(stream)
        return None if number is None else {"replication_key_value": number}

    def set(self, stream: str, bookmark: dict[str, Any]) -> None:
        """Lay one stream's bookmark over; a flat STATE has no place for a stream without a number."""
        if not self.flat:
            self.value.setdefault("bookmarks", {})[stream] = bookmark
        elif "replication_key_value" in bookmark:
            self.value[stream] = bookmark["replication_key_value"]

    def syncing(self, stream: str | None) -> None:
        """Name the stream under way; None when all are through."""
        self.value["currently_syncing"] = stream
