"""RECORD lines with their values masked: by the compiled reader what is plain, by the exact path all else.

A line that is no RECORD with an object could hold anything anywhere: only its length is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.exact_json import NotJson, dumps, loads
from bridge.protocol.decode.native import masked_lines
from bridge.protocol.mask.rules import DROP, KEEP, Members
from bridge.protocol.mask.values import ValueMasks

_LONGEST = 1 << 29
"""Bytes that the compiled reader takes at once."""
_ENVELOPE = ("version", "time_extracted")
"""The members of a RECORD that have a meaning, beside its type, its stream and the record."""
_LETTERS = {"keep": b"k", "hash": b"h", "redact": b"r", "last4": b"l", "year": b"y", "drop": b"d"}


def unreadable(size: int) -> bytes:
    """The text that stands for a line, or the rest of one, that nobody can mask."""
    return b"(%d bytes that cannot be read, so they cannot be masked and are not kept)" % size


class LineMasks:
    """Masks the lines of one stream, whose records have these `members`."""

    def __init__(self, masks: Mapping[str, str], key: str, names: Sequence[str], members: Members) -> None:
        self.members, self.values = members, ValueMasks(key)
        texts = [f"{name.casefold()}.".encode("utf-8", "surrogatepass") for name in names]
        rules = [(_LETTERS[action], glob.casefold().encode("utf-8", "surrogatepass")) for glob, action in masks.items()]
        head = _text(key.encode("utf-8", "surrogateescape")) + bytes([len(texts)])
        self._description = b"".join([head, *map(_text, texts), *(letter + _text(glob) for letter, glob in rules)])

    def masked(self, data: bytes, prefix: bytes | None) -> bytes:
        """Whole lines, masked; `prefix` is what all of them begin with, up to and including `"record":`."""
        begin = prefix or b""
        masked = None
        if len(data) < _LONGEST:
            masked = masked_lines(self._description, begin, data, lambda line: self._line(line, begin))
        if masked is None:
            masked = b"".join(self._line(line, begin) for line in data.split(b"\n")[:-1])
        return masked

    def _line(self, line: bytes, prefix: bytes) -> bytes:
        try:
            message = loads(line)
        except NotJson:
            message = None
        record = message.get("record") if isinstance(message, dict) else None
        if not isinstance(record, dict) or not _agrees(message, prefix):
            return prefix + unreadable(len(line) - len(prefix)) + b"\n"
        begin = prefix or dumps({name: message[name] for name in ("type", "stream")})[:-1] + b',"record":'
        rest = b"".join(b',"%s":%s' % (name.encode(), dumps(message[name])) for name in _ENVELOPE if name in message)
        return begin + dumps(self._object(record, self.members)) + rest + b"}\n"

    def _object(self, value: dict[str, Any], members: Members, place: str = "") -> dict[str, Any]:
        masked = {}
        for name, one in value.items():
            action, below = members.of(name)
            if action == KEEP:
                masked[name] = self._below(one, below, f"{place}{name}.") if below else one
            elif action != DROP:
                masked[name] = self.values.masked(one, action, place + name)
        return masked

    def _below(self, value: Any, below: Members, place: str) -> Any:
        if isinstance(value, dict):
            return self._object(value, below, place)
        return [self._below(one, below, place) for one in value] if isinstance(value, list) else value


def _agrees(message: dict[str, Any], prefix: bytes) -> bool:
    """Whether a message has the type and the stream that its line begins with."""
    if not prefix:
        return "type" in message and "stream" in message
    begun = loads(prefix + b"null}")
    return all(message.get(name) == begun.get(name) for name in ("type", "stream"))


def _text(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text
