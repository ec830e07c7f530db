"""How messages look on the wire: one dialect per family of real taps, byte for byte reproducible.

compact   Singer SDK: no spaces, non-ASCII escaped        raw       SDK with msgspec, pipelinewise: no spaces, UTF-8
spaced    singer-python: `", "` and `": "`, escaped       shuffled  compact, `record` before `stream` and `type`
"""

from __future__ import annotations

import json
from typing import Any

EXTRACTED_AT = "2025-01-01T00:00:00.000000"


class Dialect:
    """Turns messages into lines. Every method is pure, so the same input gives the same bytes."""

    def __init__(self, style: str, *, time_extracted: bool = True) -> None:
        self.comma, self.colon = (", ", ": ") if style == "spaced" else (",", ":")
        self.shuffled = style == "shuffled"
        self._encode = json.JSONEncoder(ensure_ascii=style != "raw", separators=(self.comma, self.colon)).encode
        self._extracted = EXTRACTED_AT + ("Z" if style in ("raw", "spaced") else "+00:00") if time_extracted else None

    def text(self, value: Any) -> str:
        """A value as JSON in this dialect."""
        return self._encode(value)

    def join(self, members: list[tuple[str, str]]) -> str:
        """An object from keys and values that are JSON text already."""
        return "{" + self.comma.join(self.text(key) + self.colon + value for key, value in members) + "}"

    def envelope(self, stream: str, version: int | None) -> tuple[str, str]:
        """The text before and after the record in a RECORD line; the second ends with the newline."""
        # a raw NUL is never part of JSON text, so it marks the place whatever the stream is called
        members = [("type", self.text("RECORD")), ("stream", self.text(stream)), ("record", "\0")]
        if version is not None:
            members.append(("version", self.text(version)))
        if self._extracted:
            members.append(("time_extracted", self.text(self._extracted)))
        if self.shuffled:
            members = members[2:] + members[1::-1]
        before, after = self.join(members).split("\0")
        return before, after + "\n"

    def schema(self, stream: str, schema: dict[str, Any], keys: list[str] | None, bookmark: list[str] | None) -> str:
        """A SCHEMA line; None leaves the property out, as SDK taps do."""
        message: dict[str, Any] = {"type": "SCHEMA", "stream": stream, "schema": schema}
        if keys is not None:
            message["key_properties"] = keys
        if bookmark is not None:
            message["bookmark_properties"] = bookmark
        return self.text(message) + "\n"

    def state(self, value: dict[str, Any]) -> str:
        """A STATE line."""
        return self.text({"type": "STATE", "value": value}) + "\n"

    def activate_version(self, stream: str, version: int) -> str:
        """An ACTIVATE_VERSION line."""
        return self.text({"type": "ACTIVATE_VERSION", "stream": stream, "version": version}) + "\n"
