"""RECORD lines with their values masked: by the compiled reader what is plain, by the exact path all else.

A line that is no RECORD with an object could hold anything anywhere: only its length is kept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from bridge.exact_json import NotJson, dumps, loads
from bridge.protocol.decode.native import masked_lines
from bridge.protocol.mask.rules import DROP, KEEP, Members, folded
from bridge.protocol.mask.values import ValueMasks

_LONGEST = 1 << 29
"""Bytes that the compiled reader takes at once."""
_TIME = re.compile(r"[-+:.,TtZz 0-9]*")
"""The characters of a time; another text may be anything."""
_LETTERS = {"keep": b"k", "hash": b"h", "redact": b"r", "last4": b"l", "year": b"y", "drop": b"d"}


def unreadable(size: int) -> bytes:
    """The text that stands for a line, or the rest of one, that nobody can mask."""
    return b"(%d bytes that cannot be read, so they cannot be masked and are not kept)" % size


class LineMasks:
    """Masks the lines of one stream, as `members` says."""

    def __init__(self, key: str, members: Members) -> None:
        self.members, self.values = members, ValueMasks(key)
        self._globs = list(members.masks)
        texts = [_text(f"{name}.") for name in members.names]
        rules = [_LETTERS[action] + _text(folded(glob)) for glob, action in members.masks.items()]
        self._description = b"".join([_text(key), bytes([len(texts)]), *texts, *rules])

    def masked(self, data: bytes, prefix: bytes | None) -> bytes:
        """Whole lines, masked; `prefix` is what all of them begin with, up to and including `"record":`."""
        begin, result = prefix or b"", None
        if len(data) < _LONGEST:
            result = masked_lines(self._description, begin, data, lambda line: self._line(line, begin))
        if result is None:
            return b"".join(self._line(line, begin) for line in data.split(b"\n")[:-1])
        lines, met = result
        if len(self.members.met) < len(self._globs):
            self.members.met.update(glob for glob, is_met in zip(self._globs, met, strict=True) if is_met)
        return lines

    def _line(self, line: bytes, prefix: bytes) -> bytes:
        try:
            masked = self._message(loads(line), prefix)
        except (NotJson, RecursionError):  # writing it may be nested too deep, where reading was not
            masked = None
        return masked or prefix + unreadable(len(line) - len(prefix)) + b"\n"

    def _message(self, message: Any, prefix: bytes) -> bytes | None:
        """A message with its record masked; None if it is no RECORD with an object."""
        record = message.get("record") if isinstance(message, dict) else None
        if not isinstance(record, dict) or not _agrees(message, prefix):
            return None
        begin = prefix or dumps({name: message[name] for name in ("type", "stream")})[:-1] + b',"record":'
        rest = b"".join(b',"%s":%s' % (name, dumps(value)) for name, value in _envelope(message))
        return begin + dumps(self._record(record)) + rest + b"}\n"

    def _record(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record masked, in one loop: some are nested deeper than functions may call each other."""
        masked: dict[str, Any] = {}
        waiting: list[tuple[Any, Any, str]] = [(record, masked, "")]

        def begun(value: Any, place: str) -> Any:
            if not isinstance(value, (dict, list)):
                return value
            new: Any = {} if isinstance(value, dict) else []
            waiting.append((value, new, place))
            return new

        while waiting:
            value, new, place = waiting.pop()
            if isinstance(value, list):
                new += [begun(one, place) for one in value]
                continue
            for name, one in value.items():
                action = self.members.of(place + name)
                if action == KEEP:
                    new[name] = begun(one, f"{place}{name}.")
                elif action != DROP:
                    new[name] = self.values.masked(one, action, place + name)
        return masked


def _envelope(message: dict[str, Any]) -> Iterator[tuple[bytes, Any]]:
    """The members of a RECORD that have a meaning, beside its type, its stream and the record; not other values."""
    version, extracted = message.get("version"), message.get("time_extracted")
    if isinstance(version, (int, float, Decimal)):
        yield b"version", version
    if isinstance(extracted, str) and _TIME.fullmatch(extracted):
        yield b"time_extracted", extracted


def _agrees(message: dict[str, Any], prefix: bytes) -> bool:
    """Whether a message has the type and the stream that its line begins with."""
    if not prefix:
        return "type" in message and "stream" in message
    begun = loads(prefix + b"null}")
    return all(message.get(name) == begun.get(name) for name in ("type", "stream"))


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return struct.pack("<I", len(data)) + data
