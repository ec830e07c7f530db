"""What a tap's stdout means, whatever its writer's habits and wherever the pipe cut it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import DataError
from bridge.protocol.singer.messages import (
    Activate,
    Batch,
    Message,
    Noise,
    Reader,
    Records,
    Schema,
    State,
    Unsupported,
)
from tests.support.pipe import Pipe, wire

STYLES = ("compact", "spaced", "raw", "shuffled")


def read(chunks: Iterable[bytes]) -> list[Message]:
    """Return what a reader makes of chunks, with the unfinished rest as a last noise of line 0."""
    reader = Reader()
    messages = [message for chunk in chunks for message in reader.feed(chunk)]
    messages += reader.finish()
    return [*messages, Noise(reader.rest(), 0)] if reader.rest().strip() else messages


def flat(messages: Iterable[Message]) -> list[Any]:
    """Return messages with RECORDs line by line: how many lines come at once is the reader's business."""
    result: list[Any] = []
    for message in messages:
        if isinstance(message, Records):
            data = bytes(message.data)
            lines = data.splitlines(keepends=True)
            assert len(lines) == message.lines == data.count(b"\n")
            assert message.first() == lines[0].rstrip(b"\n")
            assert all(line.startswith(message.prefix or b"") for line in lines)
            result += [(message.stream, line) for line in lines]
        else:
            result.append(message)
    return result


def record(stream: str, number: int, **extra: Any) -> bytes:
    message = {"type": "RECORD", "stream": stream, "record": {"id": number}, **extra}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def smoke(tmp_path: Path, **config: Any) -> bytes:
    """Return what tap-smoke writes with this config."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "tap_smoke", "--config", str(tmp_path / "config.json")]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def smoke_config(style: str) -> dict[str, Any]:
    return {
        "style": style,
        "interleave": True,
        "state": {"every": 7},
        "stdout_noise": 11,
        "streams": [
            {"name": 'a "quoted" "record": \\ näme', "records": 40, "types": True},
            {"name": "rates", "records": 30, "replication_method": "FULL_TABLE", "version": 3},
        ],
    }


@pytest.mark.parametrize("style", STYLES)
def test_every_style_reads_as_json_reads_it(tmp_path: Path, style: str) -> None:
    """Classifying by bytes says of every line what parsing it says."""
    wire = smoke(tmp_path, **smoke_config(style))
    expected: list[Any] = []
    for number, line in enumerate(wire.splitlines(keepends=True), 1):
        if line == b"hello\n":
            expected.append(Noise(b"hello", number))
            continue
        message = json.loads(line)
        expected.append(
            {
                "RECORD": lambda m=message, line=line: (m["stream"], line),
                "STATE": lambda line=line: State(line[:-1]),
                "SCHEMA": lambda m=message: Schema(
                    m["stream"], m["schema"], m["key_properties"], m.get("bookmark_properties")
                ),
                "ACTIVATE_VERSION": lambda m=message: Activate(m["stream"], m["version"]),
            }[message["type"]]()
        )
    assert flat(read([wire])) == expected


@pytest.mark.parametrize("style", STYLES)
def test_a_cut_at_any_byte_changes_nothing(tmp_path: Path, style: str) -> None:
    """Every position at which a pipe may cut the bytes in two gives the same messages."""
    config = smoke_config(style)
    config["streams"] = [{"name": 'a "record": b', "records": 5}, {"name": "c", "records": 4, "version": 1}]
    wire = smoke(tmp_path, **config | {"state": {"every": 2}, "stdout_noise": 3})
    whole = flat(read([wire]))
    assert all(flat(read([wire[:cut], wire[cut:]])) == whole for cut in range(len(wire) + 1))


LINES = [
    record("users", 1),
    record("users", 2, version=4),
    record("users_old", 3),
    record('users","record":', 4),
    b'{"type": "RECORD", "stream": "users", "record": {"id": 5}}\n',
    b'{"record":{"type":"STATE"},"stream":"users","type":"RECORD"}\n',
    b'{"type":"RECORD","stream":"caf\\u00e9","record":{"id":6}}\n',
    b'{"type":"RECORD","stream":"caf\xc3\xa9","record":{"id":7}}\r\n',
    b'{"type":"RECORD","stream":"users","record":{"half":\n',
    b'{"type":"STATE","value":{"bookmarks":{}}}\n',
    b'{"value": 3, "type": "STATE"}\r\n',
    b'{"type":"SCHEMA","stream":"users","schema":{"properties":{"record":{}}},"key_properties":["id"]}\n',
    b'{"type":"ACTIVATE_VERSION","stream":"users","version":9}\n',
    b'{"type":"BATCH","stream":"users","manifest":[]}\n',
    b"hello\n",
    b"\n",
    b"  \r\n",
    b"[1]\n",
    b'{"no":"type"}\n',
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.lists(st.integers(0, 900), max_size=6), st.booleans())
def test_any_split_gives_the_same_messages(lines: list[bytes], cuts: list[int], whole: bool) -> None:
    """However the bytes are cut into chunks, the same lines reach the same streams in the same order."""
    wire = b"".join(lines)
    wire = wire if whole else wire[: int(len(wire) * 0.9)]
    places = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    chunks = [wire[start:end] for start, end in pairwise(places)]
    assert flat(read(chunks)) == flat(read([wire])) == flat(read(wire.splitlines(keepends=True)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=12).filter(lambda t: t.isprintable()), min_size=1, max_size=4, unique=True)
)
def test_any_stream_name_is_kept(names: list[str]) -> None:
    """A stream's name is what its JSON says, escaped or not, whatever it contains."""
    records = []
    for number in range(6):
        for name in names:
            text = json.dumps(
                {"type": "RECORD", "stream": name, "record": {"id": number}}, ensure_ascii=number % 2 == 0
            )
            records.append((name, text.encode() + b"\n"))
    assert flat(read([b"".join(line for _, line in records)])) == records


def test_a_known_stream_costs_one_message_a_chunk() -> None:
    """A chunk of one stream's lines is handed on whole, with the prefix that begins each of them."""
    reader = Reader()
    list(reader.feed(record("users", 0)))
    chunk = b"".join(record("users", number) for number in range(1, 1000))
    assert list(reader.feed(chunk)) == [Records("users", chunk, 999, b'{"type":"RECORD","stream":"users","record":')]


def test_lines_of_two_streams_are_runs() -> None:
    """Consecutive lines of a stream are one message, and a stream whose name begins another's is not taken for it."""
    lines = [record("user", 1), record("users", 1), record("user", 2), record("user", 3), record("users", 2)]
    known, reader = lines[:2], Reader()
    list(reader.feed(b"".join(known)))
    found = [(m.stream, m.lines) for m in reader.feed(b"".join(lines)) if isinstance(m, Records)]
    assert found == [("user", 1), ("users", 1), ("user", 2), ("users", 1)]


def state(number: int) -> bytes:
    return b'{"type":"STATE","value":{"at":%d}}\n' % number


def test_many_states_of_one_stream_are_thinned_by_the_chunk() -> None:
    """The last before the first RECORD and the last of all are told, and what comes after that stays after it."""
    reader = Reader()
    list(reader.feed(b"".join(record("a", number) for number in range(3))))
    list(reader.feed(record("a", 3)))
    pairs = b"".join(record("a", number) + state(number) for number in range(100))
    found = flat(reader.feed(state(-2) + state(-1) + pairs + record("a", 100) + record("a", 101)))
    assert found == [
        State(state(-1).strip()),
        *(("a", record("a", number)) for number in range(100)),
        State(state(99).strip()),
        *(("a", record("a", number)) for number in (100, 101)),
    ]
    assert reader.lines == 3 + 1 + 2 + 200 + 2
    only_states = flat(reader.feed(b"".join(state(number) for number in range(100))))
    assert only_states == [State(state(99).strip())]


@pytest.mark.parametrize("odd", [record("b", 1), b"noise\n", b'{"type":"ACTIVATE_VERSION","stream":"a","version":1}\n'])
def test_states_are_not_thinned_beside_anything_else(odd: bytes) -> None:
    """Where other streams or messages come in between, each STATE may say something of its own."""
    reader = Reader()
    list(reader.feed(record("a", 0) + record("b", 0)))
    list(reader.feed(record("a", 0)))
    pairs = b"".join(record("a", number) + state(number) for number in range(100))
    assert len([message for message in reader.feed(pairs + odd) if isinstance(message, State)]) == 100
    patient = Reader(every_state=True)
    list(patient.feed(record("a", 0)))
    list(patient.feed(record("a", 0)))
    assert len([message for message in patient.feed(pairs) if isinstance(message, State)]) == 100


def test_a_state_needs_no_schema_before_it() -> None:
    """A STATE is told before any SCHEMA, as resumed taps echo theirs, and in any spelling."""
    lines = [b'{"type":"STATE","value":1}', b'{"type": "STATE", "value": {}}', b' { "value": 2, "type" : "state" }']
    assert read([b"\n".join(lines) + b"\n"]) == [State(line) for line in lines]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(end: bytes) -> None:
    """A BOM before the first message is dropped, even if that is all there is."""
    line = b'{"type":"STATE","value":1}'
    assert read([b"\xef\xbb\xbf" + line + end]) == [State(line)]
    assert read([b"\xef", b"\xbb\xbf" + line, end]) == [State(line)]


def test_line_ends_of_windows_are_whitespace() -> None:
    """CRLF taps are read as others are; the CR stays, being white space to JSON."""
    wire = b"".join(
        line.replace(b"\n", b"\r\n")
        for line in (record("u", 1), record("u", 2), b"\n", b'{"type":"STATE","value":1}\n')
    )
    assert flat(read([wire])) == [
        ("u", record("u", 1)[:-1] + b"\r\n"),
        ("u", record("u", 2)[:-1] + b"\r\n"),
        State(b'{"type":"STATE","value":1}\r'),
    ]


def test_noise_knows_its_line() -> None:
    """Whatever is no message is kept with its line number, counted from 1, blank lines included."""
    known = b"".join(record("u", number) for number in range(5))
    wire = b"hello\n" + known + b"\n\nnot json {\n" + known + b"42\n" + b'{"type":"RECORD","stream":"u"}\nlast\n'
    found = [(m.line, m.raw) for m in read([wire]) if isinstance(m, Noise)]
    lines = wire.split(b"\n")
    assert [line for line, _ in found] == [1, 9, 15, 16, 17]
    assert all(lines[line - 1] == raw for line, raw in found)
    assert [
        (m.line, m.raw) for m in read([wire[i : i + 5] for i in range(0, len(wire), 5)]) if isinstance(m, Noise)
    ] == found


def test_a_whole_last_line_needs_no_line_end() -> None:
    """A last message without line end counts; half a line does not, and is told apart."""
    reader = Reader()
    assert list(reader.feed(record("u", 1) + record("u", 2)[:-1])) == [
        Records("u", record("u", 1), 1, b'{"type":"RECORD","stream":"u","record":')
    ]
    assert flat(reader.finish()) == [("u", record("u", 2))]
    assert reader.rest() == b""
    half = Reader()
    list(half.feed(record("u", 1) + record("u", 2)[:-3]))
    assert list(half.finish()) == []
    assert half.rest() == record("u", 2)[:-3]


def test_half_a_line_in_the_middle_stays_one_line() -> None:
    """A torn RECORD line is handed on as one line; nothing of its neighbours is lost to it."""
    torn = b'{"type":"RECORD","stream":"u","record":{"a":"' + record("u", 2)
    wire = record("u", 1) + torn + record("u", 3)
    assert flat(read([wire])) == [("u", record("u", 1)), ("u", torn), ("u", record("u", 3))]


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b'"\\ud800"', b"1e999", b"123456789012345678901234567890"])
def test_values_that_strict_parsers_refuse_are_records(value: bytes) -> None:
    """NaN, lone surrogates and huge numbers make no RECORD noise: what to do with them is decided with its schema."""
    lines = [b'{"type":"RECORD","stream":"u","record":{"x":' + value + b"}}\n", record("u", 2)]
    assert flat(read([b"".join(lines)])) == [("u", line) for line in lines]


def test_messages_that_we_do_not_act_on() -> None:
    """An unknown `type` is told from a message that lacks what its type needs."""
    wire = b"\n".join(
        [
            b'{"type":"HEARTBEAT","stream":"u"}',
            b'{"type":"LOG"}',
            b'{"type":"BATCH","stream":"u","manifest":[]}',
            b'{"type":"SCHEMA","stream":"u"}',
            b'{"type":"RECORD","record":{}}',
            b'{"type":"ACTIVATE_VERSION","stream":"u"}',
            b'{"type":null}\n',
        ]
    )
    kinds = [type(m) for m in read([wire])]
    assert kinds == [Unsupported, Unsupported, Noise, Noise, Noise, Noise, Noise]


def test_a_batch_says_where_its_rows_are() -> None:
    """BATCH is told with its files, their encoding and the version of all of its rows."""
    wire = b'{"type":"batch","stream":"u","encoding":{"format":"jsonl"},"manifest":["file:///a"]%s}\n'
    encoding = {"format": "jsonl"}
    assert read([wire % b"", wire % b',"version":7']) == [
        Batch("u", encoding, ["file:///a"], None),
        Batch("u", encoding, ["file:///a"], 7),
    ]


def test_a_schema_that_is_repeated_is_not_told_again() -> None:
    """Only what changes a stream's SCHEMA is a message, be it a change back."""
    first, second = (b'{"type":"SCHEMA","stream":"u","schema":{"x":%d}}\n' % number for number in (1, 2))
    wire = first + record("u", 1) + first + record("u", 2) + second + first + first
    assert [m.schema["x"] for m in read([wire]) if isinstance(m, Schema)] == [1, 2, 1]


def test_a_type_may_be_written_in_any_case() -> None:
    """Lower case RECORDs are learned like others: a chunk of them is one message."""
    lines = [record("u", number).replace(b"RECORD", b"record") for number in range(50)]
    reader = Reader()
    list(reader.feed(lines[0]))
    assert [m.lines for m in reader.feed(b"".join(lines[1:])) if isinstance(m, Records)] == [49]


def test_a_line_that_names_two_streams_teaches_nothing() -> None:
    """The last name counts, as in every JSON reader; lines that begin alike stay with the stream that they name."""
    twice = b'{"type":"RECORD","stream":"a","record":{},"stream":"b"}\n'
    assert flat(read([twice + record("a", 1)])) == [("b", twice), ("a", record("a", 1))]


def test_a_torn_first_line_is_its_streams() -> None:
    """A line that begins as a RECORD of a stream is one, though no JSON reader takes it and none was learned before."""
    torn = b'{"type":"RECORD","stream":"u","record":{"a":\n'
    assert flat(read([torn + record("u", 1)])) == [("u", torn), ("u", record("u", 1))]


@pytest.mark.parametrize("version", [b"1795180355", b"1795180355123", b"1795180355.0"])
def test_versions_are_whole_numbers(version: bytes) -> None:
    """Seconds, milliseconds, and whatever way a whole number is written."""
    wire = b'{"type":"ACTIVATE_VERSION","stream":"u","version":%s}\n'
    assert read([wire % version]) == [Activate("u", int(float(version)))]
    assert [type(m) for m in read([wire % b"true", wire % b"1.5", wire % b'"x"'])] == [Noise] * 3


def test_a_schema_says_what_it_left_out() -> None:
    """Key properties may be missing, a bare name is one, and one that is named twice is one, too."""
    more = b',"key_properties":"id","bookmark_properties":[]'
    twice = b',"key_properties":["b","a","b"]'
    wire = b"".join(b'{"type":"SCHEMA","stream":"u","schema":{}%s}\n' % rest for rest in (b"", more, twice))
    assert read([wire]) == [Schema("u", {}, None, None), Schema("u", {}, ["id"], []), Schema("u", {}, ["b", "a"], None)]


@pytest.mark.parametrize("known", [False, True])
def test_a_line_of_50_megabytes(known: bool) -> None:
    """One huge line in small chunks is read in a moment, and costs a few copies of itself, not one a chunk."""
    line = record("u", 1)[:-3] + b',"x":"' + b"y" * 50_000_000 + b'"}}\n'
    reader, began = Reader(), time.process_time()
    found = flat(reader.feed(record("u", 0))) if known else []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for start in range(0, len(line), 1 << 16):
        found += [
            (m.stream, len(m.data)) for m in reader.feed(line[start : start + (1 << 16)]) if isinstance(m, Records)
        ]
    assert found[-1] == ("u", len(line))
    assert time.process_time() - began < 5
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 450_000


def test_a_line_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    """It is not gathered without a limit: what the last STATE covers is committed, and the next run completes."""
    schema = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}}
    rows = [{"type": "RECORD", "stream": "s", "record": {"id": n}} for n in range(1, 4)]
    state = {"type": "STATE", "value": {"bookmarks": {"s": {"id": 2}}}}
    good = wire(schema | {"key_properties": []}, rows[0], rows[1], state, rows[2])
    taken = []

    def endless() -> Iterator[bytes]:
        yield good
        while True:
            taken.append(1 << 20)
            yield b"a" * (1 << 20)

    settings = {"spool": {"max_bytes": 8 << 20}, "commit": {"bytes": 1 << 20}}
    found = Pipe(tmp_path).load(endless(), **settings)
    assert isinstance(found.error, DataError)
    assert found.error.message == "a line of the tap's output is too long longest=67108864"
    assert sum(taken) <= 66 << 20
    assert ([row["id"] for row in found.rows("s")], found.state) == ([1, 2], state["value"])
    done = Pipe(tmp_path).load(wire(schema | {"key_properties": []}, rows[2]))
    assert sorted(row["id"] for row in done.rows("s")) == [1, 2, 3]
