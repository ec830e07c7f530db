"""A tap's stdout, message by message: RECORD lines are classified by their bytes, never parsed.

The first RECORD of a stream is parsed, and its prefix (`{"type":"RECORD","stream":"users","record":`) is learned. From
then on a whole chunk of such lines costs two counts in C. Lines with another prefix are parsed one by one, so key
order, spacing and escaping change the speed and never the result. Nobody here reads what is in a RECORD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeGuard

import orjson

from bridge.errors import DataError

_LONGEST_WHOLE = 4300
"""Digits of a number, with its sign."""


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive RECORD lines of one stream, each with its line end; or rows of a BATCH as Arrow."""

    stream: str
    data: bytes | memoryview
    lines: int
    """Lines, or rows."""
    prefix: bytes | None
    """Every line begins with it; None: nothing is known."""
    arrow: Batch | None = None
    """The message whose rows these are, if `data` is of `ArrowPieces`."""

    def version(self, *, last: bool = False) -> int | None:
        """The `version` of the first RECORD, or of the last. Executors read all of them, and the commit compares."""
        if self.arrow:
            return self.arrow.version
        return version_of((parse(self.last() if last else self.first()) or {}).get("version"))

    def first(self) -> bytes:
        size = 4096
        while (cut := (head := bytes(self.data[:size])).find(b"\n")) < 0:
            size *= 4
        return head[:cut]

    def last(self) -> bytes:
        """The last line, without copying all of them."""
        size = 4096
        while True:
            _, end, line = bytes(self.data[-size:]).rstrip(b"\r\n").rpartition(b"\n")
            if end or size >= len(self.data):
                return line
            size *= 4


@dataclass(frozen=True, slots=True)
class Schema:
    """A SCHEMA message. `key_properties` and `bookmark_properties` are None where the tap leaves them out."""

    stream: str
    schema: dict[str, Any]
    key_properties: list[str] | None
    bookmark_properties: list[str] | None


@dataclass(frozen=True, slots=True)
class State:
    """A STATE line as the tap wrote it. It is parsed only if a barrier is chosen there: taps may send millions."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Activate:
    """ACTIVATE_VERSION: the stream's rows of older versions are superseded."""

    stream: str
    version: int


@dataclass(frozen=True, slots=True)
class Batch:
    """BATCH: files whose rows are the stream's next records, in their order.

    The Singer SDK's message has `encoding` and `manifest`, PipelineWise's (singer.BatchMessage) has one `filepath`.
    """

    stream: str
    encoding: dict[str, Any]
    """`format` and `compression`, as the tap wrote them."""
    manifest: list[str]
    """URIs or paths of the files."""
    version: int | None
    """The version of all of its records."""
    rows: int | None = None
    """How many records the files must have; None where the tap does not say."""
    extracted: str | None = None
    """`time_extracted` of all of its records."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A message of another type, which is ignored."""

    type: str
    stream: str | None


@dataclass(frozen=True, slots=True)
class Noise:
    """A line that is not a Singer message."""

    raw: bytes
    line: int
    """Counts from 1."""


Message = Records | Schema | State | Activate | Batch | Unsupported | Noise

_MARK = b'"record":'
_PREFIX = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?i:record)"\s*,\s*"stream"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"record":\Z')
_STATES = (b'{"type":"STATE"', b'{"type": "STATE"')
_MANY_STATES = 64
"""From so many STATEs in a chunk on, most are skipped: some taps write one with each record."""
_BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 30
"""Bytes that a line may have, whatever the settings: memory holds it several times."""


class Reader:
    """Turns chunks of bytes into messages, in order. Holds one unfinished line of at most `longest` bytes.

    Of many STATEs between RECORDs of one stream it yields only the last of a chunk, unless `every_state` is set.
    """

    def __init__(self, *, every_state: bool = False, longest: int = LONGEST_LINE) -> None:
        self.lines = 0
        self._longest, self._begun = longest, 0
        self._skips_states = not every_state
        self._parts: list[bytes] = []
        self._streams: dict[bytes, str] = {}
        self._schemas: dict[str, bytes] = {}  # each stream's latest SCHEMA line
        self._repeated: set[bytes] = set()  # the same lines, to be ignored: a tap may send one with each record
        self._prefix = b""

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield the messages that this chunk completes. A line ends only at `\\n`.

        Raises `DataError` for a line that is too long.
        """
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._parts.append(chunk)
            self._begun += len(chunk)
            if self._begun > self._longest:
                self._parts.clear()
                hint = "it does not look like lines of JSON; or raise spool.max_bytes: a line may be a quarter of it"
                raise DataError("a line of the tap's output is too long", hint=hint, longest=self._longest)
            return
        self._begun = len(chunk) - cut
        # Only the line that began in the chunk before is copied: to copy chunks would be half of our work.
        begun, self._parts = self._parts, [chunk[cut:]] if cut < len(chunk) else []
        start = 0
        if begun:
            start = chunk.find(b"\n") + 1
            line = b"".join((*begun, chunk[:start]))
            yield from self._messages(line, self._after_bom(line), len(line))
        else:
            start = self._after_bom(chunk)
        if start < cut:
            yield from self._messages(chunk, start, cut)

    def _after_bom(self, data: bytes) -> int:
        return len(_BOM) if not self.lines and data.startswith(_BOM) else 0

    def rest(self) -> bytes:
        """The bytes after the last line end: none, or a line that the tap did not finish."""
        return b"".join(self._parts)

    def finish(self) -> Iterator[Message]:
        """Yield the message of a last line without line end. If it is not whole, `rest()` returns it."""
        rest = self.rest().strip()
        rest = rest[self._after_bom(rest) :]
        if rest and parse(rest) is not None:
            self._parts = []
            yield from self._line_by_line(rest + b"\n")

    def _messages(self, data: bytes, start: int, end: int) -> Iterator[Message]:
        prefix = self._prefix
        # A raw line end cannot occur inside JSON, so counting `\n` + prefix counts the lines that begin with it.
        if prefix:
            lines = data.count(b"\n", start, end)
            others = lines - data.count(b"\n" + prefix, start, end) - data.startswith(prefix, start)
            if not others:
                self.lines += lines
                yield Records(self._streams[prefix], memoryview(data)[start:end], lines, prefix)
                return
            if self._skips_states and others >= _MANY_STATES and (few := self._with_few_states(data[start:end])):
                yield from few
                return
        yield from self._line_by_line(data[start:end])

    def _line_by_line(self, data: bytes) -> Iterator[Message]:
        prefix, run_start, run_lines, position = self._prefix, 0, 0, 0
        lines = data.split(b"\n")
        lines.pop()
        for line in lines:
            self.lines += 1
            if not (prefix and line.startswith(prefix)):
                other = self._learned_prefix(line)
                if run_lines and other != prefix:
                    yield Records(self._streams[prefix], data[run_start:position], run_lines, prefix)
                    run_lines = 0
                prefix = other
                if prefix:
                    self._prefix = prefix
                elif (message := self._classify(line)) is not None:
                    yield message
            if prefix:
                if not run_lines:
                    run_start = position
                run_lines += 1
            position += len(line) + 1
        if run_lines:
            yield Records(self._streams[prefix], data[run_start:position], run_lines, prefix)

    def _with_few_states(self, data: bytes) -> list[Message]:
        """The messages of lines that are all RECORDs of one stream and many STATEs; none for other lines.

        It keeps the last STATE of all, and the last one before the first RECORD: from there the stream goes on.
        """
        if data.count(b'"STATE"') < _MANY_STATES:  # streams that take turns end here, at the speed of C
            return []
        prefix, lines = self._prefix, data.split(b"\n")
        lines.pop()
        others = [line for line in lines if not line.startswith(prefix)]
        if not all(line.startswith(_STATES) and b'"value"' in line for line in others):
            return []
        records = [line for line in lines if line.startswith(prefix)]
        lead = next((n for n, line in enumerate(lines) if line.startswith(prefix)), len(lines))
        tail = next((n for n, line in enumerate(reversed(lines)) if not line.startswith(prefix)), 0)
        covered = len(records) - tail
        self.lines += len(lines)
        messages: list[Message] = [State(others[lead - 1])] if lead else []
        if covered:
            messages += [self._run(records[:covered]), State(others[-1])]
        return [*messages, self._run(records[covered:])] if tail else messages

    def _run(self, records: list[bytes]) -> Records:
        return Records(self._streams[self._prefix], b"\n".join([*records, b""]), len(records), self._prefix)

    def _learned_prefix(self, line: bytes) -> bytes:
        end = line.find(_MARK, 0, 1024)
        if end < 0:
            return b""
        prefix = line[: end + len(_MARK)]
        return prefix if prefix in self._streams else b""

    def _classify(self, line: bytes) -> Message | None:
        if line.startswith(_STATES) and b'"value"' in line:
            return State(line)
        if not line.strip() or line in self._repeated:
            return None
        message = parse(line)
        if message is None:
            return self._damaged(line) or Noise(line, self.lines)
        return self._message(message, line)

    def _damaged(self, line: bytes) -> Records | None:
        """A line that is not JSON still belongs to a stream if it begins as one of its RECORDs."""
        prefix, stream = _prefix_and_stream(line)
        if stream is None:
            return None
        self._streams[prefix] = stream
        return Records(stream, line + b"\n", 1, prefix)

    def _message(self, message: dict[str, Any], line: bytes) -> Message:
        kind, stream = message["type"].upper(), message.get("stream")
        if kind == "STATE" and "value" in message:
            return State(line)
        if not isinstance(stream, str) or not _is_text(stream):
            return Unsupported(kind, None) if kind not in _NEEDS_STREAM else Noise(line, self.lines)
        if kind == "RECORD" and "record" in message:
            return Records(stream, line + b"\n", 1, self._learn(line, stream))
        if kind == "SCHEMA" and isinstance(message.get("schema"), dict):
            return self._schema(stream, message, line)
        version = version_of(message.get("version"))
        if kind == "ACTIVATE_VERSION" and version is not None:
            return Activate(stream, version)
        if kind == "BATCH" and (batch := _batch(stream, message, version)):
            return batch
        return Noise(line, self.lines) if kind in _NEEDS_STREAM else Unsupported(kind, stream)

    def _schema(self, stream: str, message: dict[str, Any], line: bytes) -> Schema:
        self._repeated.discard(self._schemas.get(stream, b""))
        self._schemas[stream] = line
        self._repeated.add(line)
        keys, bookmarks = message.get("key_properties"), message.get("bookmark_properties")
        return Schema(stream, message["schema"], _names(keys), _names(bookmarks))

    def _learn(self, line: bytes, stream: str) -> bytes | None:
        prefix, named = _prefix_and_stream(line)
        if named != stream:  # the line names two streams
            return None
        self._streams[prefix] = stream
        return prefix


_NEEDS_STREAM = {"RECORD", "SCHEMA", "ACTIVATE_VERSION", "STATE", "BATCH"}


def _prefix_and_stream(line: bytes) -> tuple[bytes, str | None]:
    """A RECORD line up to the record, and the stream that it names; None if it begins otherwise."""
    prefix = line[: line.find(_MARK, 0, 1024) + len(_MARK)]
    match = _PREFIX.match(prefix)
    stream = None
    if match:
        with suppress(ValueError):
            stream = json.loads(match[1].decode())
    return prefix, stream if stream is not None and _is_text(stream) else None


def _is_text(name: str) -> bool:
    """Whether UTF-8 can hold a name: it cannot hold a lone surrogate."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _batch(stream: str, message: dict[str, Any], version: int | None) -> Batch | None:
    """A BATCH in either dialect; None if it names no files."""
    extracted = message.get("time_extracted")
    extracted = extracted if isinstance(extracted, str) and _is_text(extracted) else None
    encoding, manifest = message.get("encoding"), message.get("manifest")
    if isinstance(encoding, dict) and _are_texts(manifest):
        return Batch(stream, encoding, manifest, version, extracted=extracted)
    if not _are_texts(paths := [message.get("filepath")]):
        return None
    encoding = {"format": message.get("format") or "jsonl", "compression": message.get("compression")}
    return Batch(stream, encoding, paths, version, version_of(message.get("batch_size")), extracted)


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) and _is_text(item) for item in value)


def version_of(value: Any) -> int | None:
    """A version, in seconds or milliseconds, or another whole number, in any way to write one; None for the rest."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or not -(2**63) < value < 2**63:
        return None
    whole = int(value)
    return whole if whole == value else None


def _names(value: object) -> list[str] | None:
    """Read a list of property names, each once; a bare string is one name."""
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(str(item) for item in value)) if isinstance(value, list) else None


def _whole(digits: str) -> int | float:
    """A whole number; infinity if it has more digits than Python converts: whoever stores it reads it again."""
    return int(digits) if len(digits) < _LONGEST_WHOLE else float(digits)


def _fraction(digits: str) -> float | Decimal:
    """A number with a point or an exponent; exact where it is so near to 0 that a double would be 0."""
    return float(digits) or Decimal(digits) or 0.0


def parse(line: bytes) -> dict[str, Any] | None:
    """One line as a message; None for any other line."""
    try:
        message = orjson.loads(line)
        if isinstance(message, dict) and message.get("type") == "SCHEMA":  # orjson cuts integers beyond 64 bits
            message = json.loads(line.decode(), parse_int=_whole, parse_float=_fraction)
    except orjson.JSONDecodeError:
        try:  # orjson refuses NaN and lone surrogates, which some taps write
            message = json.loads(line.decode(), parse_int=_whole)
        except (ValueError, RecursionError):
            return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None
