"""What a record costs on its way through Python: calls are counted, not seconds, so a busy machine changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

from bridge.load.spool.spool import Spool
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import from_singer
from bridge.protocol.singer.messages import Reader, Records
from tests.benchmarks.shape import SCHEMA, block_lines
from tests.unit.load.run.test_dispatcher import Taking

LINES = block_lines(1, 0)
"""10,000 RECORD lines of 400 bytes."""
STATE = b'{"type":"STATE","value":{"bookmarks":{"orders":{"id":1}}}}\n'


def calls(work: Callable[[], Any]) -> int:
    """Return how many functions were called, Python's and C's."""
    count = 0

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def taken(folder: Path, streams: int, chunk: bytes) -> int:
    """Return the calls of one chunk, after the SCHEMAs and a first RECORD of each stream."""
    dispatcher, reader = Taking(Spool(folder)).dispatcher, Reader()
    for number in range(streams):
        said = {"type": "SCHEMA", "stream": name(number), "schema": SCHEMA, "key_properties": []}
        for part in (orjson.dumps(said) + b"\n" + renamed(LINES[0], number), renamed(LINES[1], number)):
            assert list(dispatcher.take(reader.feed(part))) == []
    return calls(lambda: list(dispatcher.take(reader.feed(chunk))))


def name(number: int) -> str:
    return f"orders{number}" if number else "orders"


def renamed(line: bytes, number: int) -> bytes:
    return line.replace(b'"stream":"orders"', b'"stream":"%s"' % name(number).encode())


def test_a_record_costs_no_call(tmp_path: Path) -> None:
    """However many lines of one stream a chunk has, they are counted and handed on at once."""
    few, many = (taken(tmp_path / str(n), 1, b"".join(LINES[:n])) for n in (200, 10_000))
    assert many <= few + 100


def test_a_state_per_record_costs_few_calls(tmp_path: Path) -> None:
    """Those between RECORDs of one stream are told once a chunk."""
    pairs = 1_000
    assert taken(tmp_path, 1, b"".join(line + STATE for line in LINES[:pairs])) / pairs < 7


def test_streams_that_take_turns_cost_few_calls(tmp_path: Path) -> None:
    """Two hundred streams, another one with each line: children and parents come like that."""
    turns = 2_000
    chunk = b"".join(renamed(line, number % 200) for number, line in enumerate(LINES[:turns]))
    assert taken(tmp_path, 200, chunk) / turns < 50


def test_decoding_costs_calls_by_the_piece() -> None:
    """Arrow reads whole pieces: a row, and a column's value, are none of Python's business."""
    schema = from_singer(SCHEMA, [])
    records = [message for message in Reader().feed(b"".join(LINES)) if isinstance(message, Records)]
    data, prefix = b"".join(bytes(message.data) for message in records), records[-1].prefix
    rows: list[int] = []
    count = calls(lambda: rows.append(decode(data, schema, prefix).table.num_rows))
    assert rows == [len(LINES)]
    assert count < 2_500
