"""Messages that we do not load: lines that are no messages, unknown types, streams that are not selected."""

from __future__ import annotations

from typing import Any

from bridge.errors import DataError
from bridge.protocol.singer.messages import Noise, Records, Unsupported
from bridge.settings.redact import Redactor

_KIND, _KINDS = 40, 20
"""Characters of an unknown message's type, and how many such types, are distinguished."""
_LONGEST = 1 << 20
"""Bytes kept of one line that is not a message."""


class IgnoredMessages:
    """Counts them, and keeps the lines that are no messages for the next commit."""

    def __init__(self, max_noise: int, redact: Redactor) -> None:
        self.noise: list[dict[str, Any]] = []
        self._noise_count, self._max_noise, self._redact = 0, max_noise, redact
        self._types: dict[str, int] = {}
        self._ignored: dict[str, int] = {}

    def add_noise(self, message: Noise) -> None:
        """Keep a line that is no message, with secrets masked. Raises `DataError` above the limit."""
        self._noise_count += 1
        raw = self._redact(message.raw)[:_LONGEST]
        self.noise.append({"stream": None, "reason": "not a Singer message", "offset": message.line, "raw": raw})
        if self._noise_count > self._max_noise:
            hint = "the tap prints other things than Singer messages on stdout: its logs belong on stderr"
            first = self.noise[0]["raw"][:80].decode("utf-8", "replace")
            raise DataError("too many lines are not Singer messages", hint=hint, lines=self._noise_count, first=first)

    def take_noise(self) -> list[dict[str, Any]]:
        """The lines since the last commit, for this one."""
        noise, self.noise = self.noise, []
        return noise

    def add_unsupported(self, message: Unsupported) -> None:
        """Count a message of a type that Singer does not have."""
        name = message.type[:_KIND]
        if name not in self._types and len(self._types) >= _KINDS:
            name = "other types"
        self._types[name] = self._types.get(name, 0) + 1

    def ignore(self, message: Records) -> None:
        """Count RECORDs of a stream that is not selected."""
        self._ignored[message.stream] = self._ignored.get(message.stream, 0) + message.lines

    def warnings(self) -> list[str]:
        """Warnings for the operator."""
        warnings = []
        if self._noise_count:
            outcome = "kept as rejects" if not self.noise else "not kept, as no commit came after them"
            warnings.append(f"{self._noise_count} line(s) of the tap's stdout were no Singer messages: {outcome}")
        for name, count in self._types.items():
            warnings.append(f"{count} message(s) of type {name} were ignored: not one of Singer's types")
        for stream, lines in self._ignored.items():
            warnings.append(f"{stream}: {lines} record(s) ignored, the stream is not selected")
        return warnings
