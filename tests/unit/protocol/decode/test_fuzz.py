"""Arbitrary bytes: nothing crashes, hangs, or reaches the table of a stream that the line does not name."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Message, Noise, Reader, Records, Unsupported
from tests.support.hazards import FILES
from tests.support.pipe import Pipe, wire

PREFIX = b'{"type":"RECORD","stream":"a","record":'
SEEDS = [line for file in FILES for line in file.read_bytes().splitlines() if len(line) < 2000]
PIECES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
]
PIECES += [b'"record":', b'"stream":"b"', b'"type":"STATE"', b"\\ud800", b"NaN", b"1e999", b"null", PREFIX]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A line that a tap may write, with some bytes cut out, put in, or doubled."""
    line = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 3))):
        start, end = sorted((draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4) | st.just(line[start:end]))
        line = line[:start] + piece + line[draw(st.sampled_from([start, end])) :]
    return line


WIRES = st.lists(mutated() | st.binary(max_size=40), max_size=8).map(b"\n".join)


def named(line: bytes) -> set[Any]:
    """The streams that a line may be said to name: each value of a `stream` at its top, or what it begins with."""
    try:
        pairs: list[list[tuple[str, Any]]] = []
        json.loads(line.decode(), object_pairs_hook=lambda found: pairs.append(found) or dict(found))
        return {value for name, value in pairs[-1] if name == "stream" and isinstance(value, str)}
    except (ValueError, RecursionError, IndexError):
        begun = line.lstrip()[line.lstrip().find(b'"stream"') + 8 :].lstrip(b" \t\r:")
        try:
            name = json.JSONDecoder().raw_decode(begun.decode("utf-8", "replace"))[0]
        except (ValueError, RecursionError):
            return set()
        return {name} if isinstance(name, str) else set()


def seen(messages: list[Message]) -> list[tuple[str, bytes]]:
    found = []
    for message in messages:
        if isinstance(message, Records):
            lines = bytes(message.data).split(b"\n")
            assert lines.pop() == b""
            assert len(lines) == message.lines
            found += [(message.stream, line) for line in lines]
    return found


@settings(max_examples=500, deadline=None)
@given(WIRES, st.lists(st.integers(0, 2000), max_size=5))
def test_the_reader_takes_any_bytes(data: bytes, cuts: list[int]) -> None:
    """Each RECORD line goes, unchanged and once, to a stream that it names; cuts make no difference."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    results = []
    for chunks in ([data], [data[start:end] for start, end in pairwise(places)]):
        reader = Reader()
        messages = [message for chunk in chunks for message in reader.feed(chunk)]
        messages += reader.finish()
        results.append((seen(messages), [message for message in messages if not isinstance(message, Records)]))
    assert results[0] == results[1]
    records, others = results[0]
    for stream, line in records:
        assert stream in named(line)
        assert line in data
    assert len(records) + sum(isinstance(each, (Noise, Unsupported)) for each in others) <= data.count(b"\n") + 1


SCHEMAS = [
    {"id": {"type": "integer"}, "name": {"type": "string"}, "at": {"type": "string", "format": "date-time"}},
    {"id": {}, "record": {"type": "object", "properties": {"record": {"type": "number"}}}},
    {"id": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "boolean"}}}}},
    {"id": {"type": "number", "multipleOf": 0.01}, "name": {"type": "string", "format": "date"}},
]
TABLES = [from_singer({"properties": properties}, keys) for properties in SCHEMAS for keys in ((), ("id",))]


def decoded(lines: list[bytes], table: TableSchema, prefix: bytes | None) -> None:
    """Each line is a row or a reject with its own bytes, and the table is sound."""
    data = b"".join(line + b"\n" for line in lines)
    found = decode(data, table, prefix, envelope=True)
    found.table.validate(full=True)
    assert found.table.num_rows + len(found.rejects) == len(lines)
    assert all(lines[reject.line] == reject.raw for reject in found.rejects)
    assert len(found.version) == len(found.extracted) == found.table.num_rows


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TABLES), st.lists(mutated() | st.binary(max_size=40), min_size=1, max_size=6), st.booleans())
def test_the_decoder_takes_any_lines(table: TableSchema, lines: list[bytes], known: bool) -> None:
    """Whatever the lines hold, with the prefix that they are said to begin with and without."""
    lines = [line.replace(b"\n", b" ") for line in lines]
    lines = [PREFIX + line.rpartition(b'"record":')[2] for line in lines] if known else lines
    decoded(lines, table, PREFIX if known else None)


@pytest.mark.parametrize("table", TABLES[::2])
@pytest.mark.parametrize("opening", [b"[", b'{"id":', b'{"record":', b'{"a":['])
def test_a_line_as_deep_as_it_is_long(table: TableSchema, opening: bytes) -> None:
    """A hundred thousand levels neither overflow a stack nor take long, closed or not."""
    closing = {b"[": b"]", b'{"a":[': b"]}"}.get(opening, b"}")
    began = time.process_time()
    for value in (opening * 100_000, opening * 100_000 + b"1" + closing * 100_000):
        line = PREFIX + b'{"id":' + value + b"}}"
        decoded([line, PREFIX + b'{"id":1}}'], table, PREFIX)
        decoded([line], table, None)
        assert [stream for stream, _ in seen(list(Reader().feed(line + b"\n")))] == ["a"]
    assert time.process_time() - began < 20


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(mutated(), max_size=12), st.booleans())
def test_a_run_ends_in_good_order_whatever_the_tap_writes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], selected: bool
) -> None:
    """A run loads what it can and says what it cannot; it writes to folders of streams that the tap has named only."""
    start = wire({"type": "SCHEMA", "stream": "users", "schema": {"properties": {"id": {"type": "integer"}}}})
    root = tmp_path_factory.mktemp("fuzz")
    data = start + b"\n".join(lines) + b"\n"
    try:
        found = Pipe(root).load(data, deselected=() if selected else ["users"])
    except BridgeError as error:  # before anything was opened
        assert error.hint
        return
    assert found.error is None or found.error.hint
    folders = {path.parent for path in (root / "lake").rglob("*.parquet")}
    assert {str(folder.relative_to(root / "lake")) for folder in folders} <= {
        table.folder for table in found.view.tables.values()
    }
    said = set().union(*(named(line) for line in data.splitlines() if b'"stream"' in line))
    assert set(found.streams()) <= said
    committed = sum(counts.committed + counts.rejected for counts in found.counts.values())
    # A SCHEMA in the middle may bring a key, by which later rows replace earlier ones.
    no_rows = ("updated", "superseded", "deleted")
    replaced = sum(counts.merged.get(name, 0) for counts in found.counts.values() for name in no_rows)
    assert committed - replaced == sum(len(found.rows(stream)) for stream in found.streams()) + sum(
        reject["stream"] is not None for reject in found.rejects()
    )
    assert not list(Path(root).glob("home/*"))
