"""BATCH of Arrow and Parquet: the table is the one that the same rows make as RECORDs, and each fault has its words."""

from __future__ import annotations

import json
import math
import os
import random
import uuid
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import DataError
from bridge.load.tap.batch_files import Batches
from bridge.protocol.decode.arrow.plain import plain_pieces
from bridge.protocol.decode.arrow.rows import json_rows
from bridge.protocol.singer.messages import Batch
from tests.support.pipe import Found, Pipe, plain, wire

PROPERTIES: dict[str, Any] = {
    "id": {"type": ["null", "integer"]},
    "name": {"type": ["null", "string"]},
    "at": {"type": ["null", "string"], "format": "date-time"},
    "day": {"type": ["null", "string"], "format": "date"},
    "price": {"type": ["null", "number"], "multipleOf": 0.01},
    "ratio": {"type": ["null", "number"]},
    "place": {"type": ["null", "object"], "properties": {"x": {"type": ["null", "integer"]}}},
    "tags": {"type": ["null", "array"], "items": {"type": "string"}},
    "free": {},
}


def schema(*keys: str) -> dict[str, Any]:
    return {"type": "SCHEMA", "stream": "s", "schema": {"properties": PROPERTIES}, "key_properties": list(keys)}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"s": {"id": number}}}}


def table(ids: list[Any], seed: int = 0) -> pa.Table:
    """Rows with these ids, of which some have values that do not fit, columns outside the SCHEMA, nulls."""
    rng = random.Random(seed)

    def some(*values: Any) -> list[Any]:
        return [rng.choice([*values, None]) for _ in ids]

    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(some("a", 'b"\n', "é", "2024-01-01")).dictionary_encode(),
            "at": pa.array(some(0, 1_700_000_000_000_001_000, 999), pa.timestamp("ns", "Europe/Berlin")),
            "day": pa.array(some(date(2024, 1, 2), date(1, 1, 1))),
            "price": pa.array(some(Decimal("1.500"), Decimal("9.990"), Decimal("0.001")), pa.decimal128(12, 3)),
            "ratio": pa.array(some(0.1, 1e300, math.inf), pa.float64()),
            "place": pa.array(some({"x": 1}, {"x": None}), pa.struct([("x", pa.int8())])),
            "tags": pa.array(some(["a", "b"], []), pa.list_view(pa.string())),
            "free": pa.array(some(uuid.UUID(int=3).bytes), pa.uuid()),
            "more": pa.array(some(b"\xff", b""), pa.binary_view()),
        }
    )


def ipc(rows: pa.Table, path: Path, *, stream: bool = False, codec: str | None = None, chunk: int = 7) -> Path:
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with path.open("wb") as file, make(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(rows, max_chunksize=chunk)
    return path


def parquet(rows: pa.Table, path: Path) -> Path:
    """Parquet has no views."""
    tags = pa.array(rows.column("tags").to_pylist(), pa.list_(pa.string()))
    rows = rows.set_column(rows.schema.get_field_index("tags"), "tags", tags)
    more = rows.column("more").cast(pa.binary())
    pq.write_table(rows.set_column(rows.num_columns - 1, "more", more), path, row_group_size=7)
    return path


WRITERS: dict[str, Callable[[pa.Table, Path], Path]] = {
    "file": ipc,
    "zstd": lambda rows, path: ipc(rows, path, codec="zstd"),
    "lz4 stream": lambda rows, path: ipc(rows, path, stream=True, codec="lz4"),
    "parquet": parquet,
}


def batch(*files: Path | str, form: str = "arrow", **more: Any) -> dict[str, Any]:
    manifest = [file.as_uri() if isinstance(file, Path) else file for file in files]
    return {"type": "BATCH", "stream": "s", "encoding": {"format": form}, "manifest": manifest, **more}


def records(rows: pa.Table, **more: Any) -> bytes:
    """The same rows as RECORD lines."""
    end = "".join(f',"{name}":{json.dumps(value)}' for name, value in more.items()).encode()
    pieces = (piece for each in rows.to_batches() for piece in plain_pieces(each))
    lines = b"".join(map(json_rows, pieces)).splitlines()
    return b"".join(b'{"type":"RECORD","stream":"s","record":%s%s}\n' % (line, end) for line in lines)


def outcome(found: Found) -> Any:
    """What a reader, and an operator, can see of a load."""
    assert found.error is None
    counts = found.counts["s"]
    told = [(each["reason"], each["pointer"], each["offset"], each["raw"]) for each in found.rejects()]
    rows = [plain({name: value for name, value in row.items() if name not in TIMES}) for row in found.rows("s")]
    return found.table("s").schema, rows, sorted(told), found.state, counts.records, counts.committed, counts.changed


TIMES = ("_sdc_received_at", "_sdc_batched_at", "_sdc_sequence")


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
def test_the_table_is_that_of_the_same_rows_as_records(tmp_path: Path, method: str, writer: str) -> None:
    """By each load method, in each form, with rejects, extra fields and metadata columns; a later row of a key wins."""
    rows, again = table([*range(40), None]), table([3, 5, 5, 39, 100], seed=1)
    form = "parquet" if writer == "parquet" else "arrow"
    say = schema("id") if method == "upsert" else schema()
    files = [WRITERS[writer](rows, tmp_path / "1"), WRITERS[writer](again, tmp_path / "2")]
    messages = [batch(file, form=form, version=4, time_extracted="2024-01-01T00:00:00Z") for file in files]
    end = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 4}
    settings: dict[str, Any] = {"load_method": method, "add_record_metadata": True}
    ours = Pipe(tmp_path / "arrow").load(wire(say, messages[0], state(1), messages[1], end, state(2)), **settings)
    lines = [records(each, time_extracted="2024-01-01T00:00:00Z", version=4) for each in (rows, again)]
    said = wire(say) + lines[0] + wire(state(1)) + lines[1] + wire(end, state(2))
    theirs = Pipe(tmp_path / "lines").load(said, **settings)
    assert outcome(ours) == outcome(theirs)
    assert ours.rejects()
    assert len(ours.rows("s")) > 30


@pytest.mark.parametrize("settings", [{"rejects": {"validate": "full"}}, {"commit": {"bytes": "1MiB"}}, {}])
def test_lines_and_arrow_take_turns(tmp_path: Path, settings: dict[str, Any]) -> None:
    """RECORDs and BATCHes of one stream keep their order, whatever ends between them."""
    parts = [table([1, 2, 3], seed=n) for n in range(8)]
    mixed, lines = wire(schema("id")), wire(schema("id"))
    for number, rows in enumerate(parts):
        file = ipc(rows, tmp_path / f"{number}.arrow")
        mixed += records(rows) if number % 3 == 1 else wire(batch(file))
        lines += records(rows)
        if number % 2:
            mixed, lines = mixed + wire(state(number)), lines + wire(state(number))
    ours = Pipe(tmp_path / "mixed").load(mixed, load_method="upsert", **settings)
    theirs = Pipe(tmp_path / "lines").load(lines, load_method="upsert", **settings)
    assert outcome(ours) == outcome(theirs)


def test_what_lies_after_the_last_state_waits(tmp_path: Path) -> None:
    """A tap that fails: rows up to its last STATE are there, those after it are not, and come again."""
    first, second = (ipc(pa.table({"id": ids}), tmp_path / name) for ids, name in (([1, 2], "1"), ([3, 4], "2")))
    lake = Pipe(tmp_path / "lake-of")
    found = lake.load(wire(schema(), batch(first), state(1), batch(second)), fails=True, load_method="append-only")
    assert ([row["id"] for row in found.rows("s")], found.state) == ([1, 2], state(1)["value"])
    found = lake.load(wire(schema(), batch(second), state(2)), load_method="append-only")
    assert [row["id"] for row in found.rows("s")] == [1, 2, 3, 4]


@pytest.mark.parametrize("versions", [(1, 2), (1, None), (2, 2)])
def test_versions_of_several_batches(tmp_path: Path, versions: tuple[int | None, ...]) -> None:
    """A full table has rows of one version, or the run says so, as for RECORDs; appended rows may have any."""
    told, lines = wire(schema()), wire(schema())
    for number, version in enumerate(versions):
        rows, more = pa.table({"id": [number, 9]}), {} if version is None else {"version": version}
        told += wire(batch(ipc(rows, tmp_path / str(number)), **more))
        lines += records(rows, **more)
    end = wire({"type": "ACTIVATE_VERSION", "stream": "s", "version": 2}, state(3))
    for method in ("overwrite", "append-only"):
        ours = Pipe(tmp_path / "arrow" / method).load(told + end, load_method=method)
        theirs = Pipe(tmp_path / "lines" / method).load(lines + end, load_method=method)
        assert str(ours.error) == str(theirs.error)
        assert ours.streams() == theirs.streams()
        assert [ours.rows(each) for each in ours.streams()] == [theirs.rows(each) for each in theirs.streams()]


@pytest.mark.parametrize("how", ["plain", "dictionary"])
def test_text_that_is_not_utf_8_is_a_reject(tmp_path: Path, how: str) -> None:
    """With its bytes; the rows around it are stored."""
    bad = pa.array([b"good", b'\xff"\n', b"\xc3\xa9"])
    names = pa.Array.from_buffers(pa.string(), 3, bad.buffers())
    if how == "dictionary":
        names = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), names)
    file = ipc(pa.Table.from_arrays([pa.array([1, 2, 3]), names], ["id", "name"]), tmp_path / "f")
    found = Pipe(tmp_path / "p").load(wire(schema(), batch(file), state(3)))
    assert [(row["id"], row["name"]) for row in found.rows("s")] == [(1, "good"), (3, "é")]
    (reject,) = found.rejects()
    assert (reject["reason"], reject["raw"]) == ("not UTF-8", None)


@pytest.mark.parametrize("key", [None, math.nan, 2.0**60])
def test_a_key_that_is_none(tmp_path: Path, key: float | None) -> None:
    """A null, NaN or a rounded number as a key: the outcome is that of the RECORD."""
    say = schema("ratio") | {"schema": {"properties": {"ratio": {"type": ["null", "number"]}}}}
    rows = pa.table({"ratio": pa.array([1.5, key, 2.5], pa.float64())})
    ours = Pipe(tmp_path / "a").load(wire(say, batch(ipc(rows, tmp_path / "f")), state(1)), load_method="upsert")
    theirs = Pipe(tmp_path / "b").load(wire(say) + records(rows) + wire(state(1)), load_method="upsert")
    assert str(outcome(ours)) == str(outcome(theirs))


def test_many_small_files(tmp_path: Path) -> None:
    """Two thousand files of one row: each row once, in the order of the messages."""
    files = [ipc(pa.table({"id": [n]}), tmp_path / f"{n}.arrow") for n in range(2000)]
    told = [batch(*files[start : start + 50]) for start in range(0, 2000, 50)]
    found = Pipe(tmp_path / "p").load(wire(schema(), *told, state(1)))
    assert [row["id"] for row in found.rows("s")] == list(range(2000))


def cut_file(path: Path) -> dict[str, Any]:
    whole = ipc(table(list(range(90))), path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return batch(path)


def cut_stream(path: Path, keep: Callable[[bytes], bytes]) -> dict[str, Any]:
    path.write_bytes(keep(ipc(table(list(range(90))), path, stream=True).read_bytes()))
    return batch(path)


def flipped(path: Path) -> dict[str, Any]:
    """An offset beyond the column's text."""
    rows = pa.table({"id": [1], "name": ["x" * 64]})
    data = ipc(rows, path).read_bytes()
    offsets = (0).to_bytes(4, "little") + (64).to_bytes(4, "little")
    before, _, after = data.rpartition(offsets)  # an earlier one says how long the column is
    path.write_bytes(before + (0).to_bytes(4, "little") + (1 << 30).to_bytes(4, "little") + after)
    return batch(path)


def written(path: Path, data: bytes, form: str = "arrow") -> dict[str, Any]:
    path.write_bytes(data)
    return batch(path, form=form)


def arrays(path: Path, columns: list[pa.Array], names: list[str]) -> dict[str, Any]:
    return batch(ipc(pa.Table.from_arrays(columns, names), path))


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
FAULTS: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "missing": (batch, "No such file"),
    "a directory": (lambda path: batch(path.parent), "Is a directory"),
    "empty": (lambda path: written(path, b""), "it is empty"),
    "text": (lambda path: written(path, b'{"id": 1}\n'), ""),
    "zeros": (lambda path: written(path, bytes(4096)), "schema message"),
    "a file, cut": (cut_file, ""),
    "a stream, cut in a message": (lambda path: cut_stream(path, lambda data: data[:-300]), ""),
    "a stream without its end": (lambda path: cut_stream(path, lambda data: data[:-8]), "it has no end mark"),
    "two streams": (lambda path: cut_stream(path, lambda data: data + data), "it goes on after its end mark"),
    "a stream and more": (lambda path: cut_stream(path, lambda data: data + b"\0" * 8), "it goes on after"),
    "flipped bits": (flipped, ""),
    "two names": (lambda path: arrays(path, [pa.array([1]), pa.array([2])], ["id", "id"]), "have one name"),
    "a union": (lambda path: arrays(path, [UNION], ["id"]), "the column id is a union"),
    "a JSON file": (lambda path: written(path, b'{"id": 1}\n', form="parquet"), "Parquet magic bytes not found"),
    "an unknown codec": (lambda path: batch(path, form="orc"), "unknown encoding"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, fault: str) -> None:
    """The error names file, stream and reason; what an earlier STATE covers stays, no row of its epoch does."""
    broken, says = FAULTS[fault]
    good = batch(ipc(pa.table({"id": [1]}), tmp_path / "good"))
    told = wire(schema(), good, state(1), good, broken(tmp_path / "bad"), state(2))
    found = Pipe(tmp_path / "p").load(told, load_method="append-only")
    assert isinstance(found.error, DataError)
    assert says in found.error.message
    assert "stream=s" in found.error.message
    assert found.error.hint
    assert (found.state, [row["id"] for row in found.rows("s")]) == (state(1)["value"], [1])


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """Nobody knows which rows it meant."""
    file = ipc(table(list(range(200))), tmp_path / "f", stream=True)

    def tick() -> None:
        os.utime(file, (1, 1))

    reading = Batches(tick=tick).records(Batch("s", {"format": "arrow"}, [str(file)], None))
    with pytest.raises(DataError, match="it changed while it was read"):
        list(reading)


def test_a_dictionary_of_long_values_stays_small_in_memory(tmp_path: Path) -> None:
    """A hundred thousand rows that name one value of a MiB: pieces hold only some of them."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * (1 << 20)]))
    batch_of = pa.RecordBatch.from_arrays([values], ["name"])
    sizes = [piece.nbytes for piece, _ in zip(plain_pieces(batch_of), range(3), strict=False)]
    assert max(sizes) < 100 << 20


def test_rows_without_columns(tmp_path: Path) -> None:
    """A row whose every field is absent is a row still."""
    empty = pa.table({"id": [1, 2, 3]}).select([])
    found = Pipe(tmp_path / "p").load(wire(schema(), batch(ipc(empty, tmp_path / "f")), state(1)))
    assert [row["id"] for row in found.rows("s")] == [None] * len(found.rows("s"))
    assert found.error is None


def test_a_batch_size_that_does_not_match(tmp_path: Path) -> None:
    """A message that says how many rows there are is held to it."""
    file = ipc(pa.table({"id": [1, 2]}), tmp_path / "f")
    told = {"type": "BATCH", "stream": "s", "filepath": str(file), "format": "arrow", "batch_size": 3}
    found = Pipe(tmp_path / "p").load(wire(schema(), told, state(1)))
    assert "it has 2 record(s), and the message's batch_size says 3" in str(found.error)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)


def test_nanoseconds_that_are_cut_are_counted(tmp_path: Path) -> None:
    """The table has microseconds; the run says how many values have lost digits."""
    file = ipc(pa.table({"at": pa.array([1, 1000, None], pa.timestamp("ns"))}), tmp_path / "f")
    found = Pipe(tmp_path / "p").load(wire(schema(), batch(file), state(1)))
    assert [row["at"] for row in found.rows("s")] == [utc(1970, 1, 1), utc(1970, 1, 1, 0, 0, 0, 1), None]
    assert found.warnings == []


@pytest.mark.parametrize(
    ("root", "file", "is_read"),
    [
        ("file://{}/files", "file://{}/files/a.arrow", True),
        ("{}/files", "{}/files/a.arrow", True),
        ("file://{}/files/", "file://{}/files/../secret.arrow", False),
        ("file://{}/files", "file://{}/files/link.arrow", False),
        ("file://{}/files", "{}/secret.arrow", False),
        ("file://{}/files", "s3://bucket/a.arrow", False),
        ("s3://bucket/files", "file://{}/files/a.arrow", False),
        ("s3://bucket/files", "s3://bucket/files-of-others/a.arrow", False),
        ("file://.batches", "{}/files/a.arrow", True),
        ("", "{}/files/a.arrow", True),
    ],
)
def test_only_files_from_where_the_tap_writes_are_read(tmp_path: Path, root: str, file: str, is_read: bool) -> None:
    """A message that names another file is refused; nobody asks a store for what it names."""
    (tmp_path / "files").mkdir()
    for name in ("files/a.arrow", "secret.arrow"):
        ipc(pa.table({"id": [1]}), tmp_path / name)
    (tmp_path / "files/link.arrow").symlink_to(tmp_path / "secret.arrow")
    config = {"batch_config": {"storage": {"root": root.format(tmp_path)}}}
    told = Batch("s", {"format": "arrow"}, [file.format(tmp_path)], None)
    reading = Batches(config=config).records(told)
    if is_read:
        assert [each.lines for each in reading] == [1]
        return
    with pytest.raises(DataError, match="lies outside of the tap's folder"):
        list(reading)


def test_instants_beyond_every_calendar_are_rejects(tmp_path: Path) -> None:
    """The largest number of milliseconds, by which some mean for ever, is not an instant of 1969."""
    columns = {"at": pa.array([2**63 - 1, 0], pa.timestamp("ms", "UTC")), "id": [1, 2]}
    found = Pipe(tmp_path / "p").load(wire(schema(), batch(ipc(pa.table(columns), tmp_path / "f")), state(1)))
    assert [row["id"] for row in found.rows("s")] == [2]
    assert [each["reason"] for each in found.rejects()] == ["not a date-time"]


@pytest.mark.parametrize("type_", [pa.timestamp("ns"), pa.time64("ns")])
def test_the_text_of_a_key_does_not_depend_on_its_neighbours(tmp_path: Path, type_: pa.DataType) -> None:
    """Nanoseconds as texts: the same value is the same key in each file."""
    files = [ipc(pa.table({"name": pa.array(ticks, type_)}), tmp_path / str(len(ticks))) for ticks in ([0], [0, 1])]
    found = Pipe(tmp_path / "p").load(wire(schema("name"), *map(batch, files), state(1)), load_method="upsert")
    assert len(found.rows("s")) == 2


def test_a_parquet_file_that_has_lost_row_groups(tmp_path: Path) -> None:
    """Its footer tells how many rows there are: fewer are an error."""
    file = parquet(table(list(range(20))), tmp_path / "f")
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[-8 - size : -8])
    groups = footer.index(b"\x19", footer.index(b"schema") + 6)
    changed = 0
    for place in range(groups, len(footer)):
        broken = bytearray(footer)
        broken[place] = 0
        file.write_bytes(bytes(data[: -8 - size]) + bytes(broken) + bytes(data[-8:]))
        found = Pipe(tmp_path / f"p{place}").load(wire(schema(), batch(file, form="parquet"), state(1)))
        rows = found.counts["s"].records if "s" in found.counts else 0
        assert found.error or rows == 20
        changed += bool(found.error)
        if changed > 20:
            break
    assert changed
