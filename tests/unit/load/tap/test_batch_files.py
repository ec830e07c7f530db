"""BATCH: files that are as good as the RECORDs that the tap could have sent."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import DataError
from bridge.load.tap.batch_files import Batches
from bridge.protocol.singer.messages import Batch
from bridge.settings.values.stores import S3Options
from tests.support.pipe import Found, Pipe, wire
from tests.support.s3server import S3Server

UTC = timezone.utc
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "name": {"type": ["null", "string"]},
    "at": {"type": ["null", "string"], "format": "date-time"},
    "day": {"type": ["null", "string"], "format": "date"},
    "price": {"type": ["null", "number"], "multipleOf": 0.01},
    "ratio": {"type": ["null", "number"]},
    "place": {"type": ["null", "object"], "properties": {"x": {"type": ["null", "integer"]}}},
    "tags": {"type": ["null", "array"], "items": {"type": "string"}},
    "free": {},
}
SCHEMA = {"type": "SCHEMA", "stream": "s", "schema": {"properties": COLUMNS}, "key_properties": ["id"]}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ä\u0000", "at": "2024-01-01T00:00:00", "day": "2024-01-02", "price": 1.25, "ratio": 0.1},
    {"id": 2, "place": {"x": 7}, "tags": ["a", "b"], "free": {"k": [1, None]}},
    {"id": 3},
]


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"s": {"id": number}}}}


def batch(*files: str | Path, form: str = "jsonl", compression: str | None = None, **more: Any) -> dict[str, Any]:
    """A BATCH message as singer-sdk writes it."""
    manifest = [file.as_uri() if isinstance(file, Path) else file for file in files]
    encoding = {"format": form} | ({"compression": compression} if compression else {})
    return {"type": "BATCH", "stream": "s", "encoding": encoding, "manifest": manifest, **more}


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_records(tmp_path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the same rows are in the lake when they come as RECORDs."""
    records = [{"type": "RECORD", "stream": "s", "record": row} for row in rows]
    return Pipe(tmp_path / "records").load(wire(SCHEMA, *records, state(9))).rows("s")


def load(tmp_path: Path, *messages: dict[str, Any], **settings: Any) -> Found:
    return Pipe(tmp_path / "batch").load(wire(SCHEMA, *messages), **settings)


def zstd(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data).to_pybytes()
    return packed


@pytest.mark.parametrize(
    ("pack", "said"),
    [
        (gzip.compress, "gzip"),
        (zstd, "zstd"),
        (bytes, "none"),
        (bytes, None),
        (gzip.compress, None),
        (lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]), "gzip"),
    ],
)
def test_a_batch_is_the_same_rows_as_its_records(
    tmp_path: Path, pack: Callable[[bytes], bytes], said: str | None
) -> None:
    """With any compression, declared or not, the rows, their values and their order are those of RECORDs."""
    (tmp_path / "a b=1.json").write_bytes(pack(lines(ROWS[:2])))
    (tmp_path / "2.json").write_bytes(pack(lines(ROWS[2:])))
    found = load(tmp_path, batch(tmp_path / "a b=1.json", tmp_path / "2.json", compression=said), state(3))
    assert found.error is None
    assert found.rows("s") == as_records(tmp_path, ROWS)
    assert found.state == state(3)["value"]
    assert (found.counts["s"].records, found.counts["s"].committed) == (3, 3)


def test_lines_are_read_as_they_are_written(tmp_path: Path) -> None:
    """A BOM, blank lines, CRLF and a last line without its end are no rows and cost none."""
    text = "\ufeff" + '\n{"id":1}\r\n \n\n{"id":2,"name":"x"}\r\n\r\n{"id":3}'
    (tmp_path / "f").write_bytes(text.encode())
    found = load(tmp_path, batch(tmp_path / "f"), state(3))
    assert [row["id"] for row in found.rows("s")] == [1, 2, 3]
    assert found.rejects() == []


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    """Files without a row, and a manifest without a file, are no error."""
    (tmp_path / "f").write_bytes(gzip.compress(b""))
    (tmp_path / "g").write_bytes(b"\n\n")
    found = load(tmp_path, batch(tmp_path / "f", compression="gzip"), batch(tmp_path / "g"), batch(), state(1))
    assert (found.error, found.rows("s")) == (None, [])


def test_a_row_that_does_not_fit_is_a_reject(tmp_path: Path) -> None:
    """Each line is a row or a reject, with the reason and the line as the message it stands for."""
    (tmp_path / "f").write_bytes(b'{"id":1}\n{"id":"x"}\n{"id":2\n[1]\n{"id":3}\n')
    found = load(tmp_path, batch(tmp_path / "f"), state(3))
    assert [row["id"] for row in found.rows("s")] == [1, 3]
    reasons = [(reject["reason"], reject["offset"]) for reject in found.rejects()]
    assert reasons == [("not an integer", 2), ("not a JSON line", 3), ("record is not an object", 4)]
    assert '"record":{"id":"x"}' in found.rejects()[0]["raw"]


def test_a_batch_has_the_version_of_its_message(tmp_path: Path) -> None:
    """A full table comes in batches: it is swapped in, and its rows have the version."""
    (tmp_path / "f").write_bytes(lines(ROWS))
    end = {"type": "ACTIVATE_VERSION", "stream": "s", "version": 5}
    found = load(tmp_path, batch(tmp_path / "f", version=5), end, state(3), load_method="overwrite")
    assert (len(found.rows("s")), found.view.tables["s"].version) == (3, 5)


def test_max_records_counts_rows_of_batches(tmp_path: Path) -> None:
    """The limit is reached by the rows of a file as it is by RECORDs."""
    (tmp_path / "f").write_bytes(lines([{"id": n} for n in range(10)]))
    found = load(tmp_path, batch(tmp_path / "f"), state(1), batch(tmp_path / "f"), state(2), max_records=10)
    assert (found.state, len(found.rows("s"))) == (state(1)["value"], 10)


def test_a_parquet_file_is_the_same_rows(tmp_path: Path) -> None:
    """Typed columns become what their texts would have become, digit by digit; what has no offset is UTC."""
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "name": pa.array(["ä", None, "c"]).dictionary_encode(),
            "at": pa.array([datetime(2024, 1, 1), None, datetime(1, 1, 1)], pa.timestamp("us")),
            "day": pa.array([date(2024, 1, 2), None, None]),
            "price": pa.array([Decimal("12345678901234567.89"), None, None]),
            "ratio": pa.array([0.1, math.inf, math.nan]),
            "place": pa.array([{"x": 7}, None, {"x": None}]),
            "tags": pa.array([["a", "b"], [], None]),
            "free": pa.array([time(1, 2, 3), None, time(4, 5, 6, 7)]),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    found = load(tmp_path, batch(tmp_path / "f.parquet", form="parquet"), state(3))
    assert found.rejects() == []
    first, second, third = found.rows("s")
    assert first == {
        "id": 1,
        "name": "ä",
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "day": date(2024, 1, 2),
        "price": Decimal("12345678901234567.89"),
        "ratio": 0.1,
        "place": {"x": 7},
        "tags": ["a", "b"],
        "free": '"01:02:03.000000"',
    }
    assert (second["ratio"], second["tags"], second["name"]) == (math.inf, [], None)
    assert math.isnan(third["ratio"])
    assert (third["at"], third["free"]) == (datetime(1, 1, 1, tzinfo=UTC), '"04:05:06.000007"')


def test_what_a_parquet_file_has_beyond_the_schema_is_kept(tmp_path: Path) -> None:
    """A value that does not fit is a reject with its row as JSON, a column outside the SCHEMA is extra."""
    table = pa.table(
        {
            "id": pa.array([1, 2**63, 3], pa.uint64()),
            "at": pa.array([1, 2, 3], pa.timestamp("ns", "Europe/Berlin")),
            "raw": pa.array([b"\xff", b"", None]),
            "map": pa.array([{"k": 1}, None, None], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet")
    found = load(tmp_path, batch(tmp_path / "f.parquet", form="parquet"), state(3))
    rows = found.rows("s")
    assert [(row["id"], row["_sdc_extra"]) for row in rows] == [
        (1, '{"raw":"/w==","map":{"k":1}}'),
        (3, '{"raw":null,"map":null}'),
    ]
    assert rows[0]["at"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert [reject["reason"] for reject in found.rejects()] == ["integer beyond 64 bits"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_singer_sdk_writes(tmp_path: Path, form: str) -> None:
    """The SDK's own encoders, manifests and messages: the rows are those of its RECORDs."""
    from singer_sdk.contrib.batch_encoder_jsonl import JSONLinesBatcher
    from singer_sdk.contrib.batch_encoder_parquet import ParquetBatcher
    from singer_sdk.helpers._batch import BaseBatchFileEncoding, BatchConfig, SDKBatchMessage, StorageTarget

    encoding = BaseBatchFileEncoding(form, "gzip")
    config = BatchConfig(encoding, StorageTarget((tmp_path / "files").as_uri(), prefix="p-"), batch_size=2)
    rows = [{**dict.fromkeys(COLUMNS), **row, "at": "2024-01-01T00:00:00", "free": None} for row in ROWS]
    batcher = {"jsonl": JSONLinesBatcher, "parquet": ParquetBatcher}[form]("tap-x", "s", config)
    messages = [SDKBatchMessage("s", encoding, manifest).to_dict() for manifest in batcher.get_batches(iter(rows))]
    assert len(messages) == 2
    messages = json.loads(json.dumps(messages, default=lambda each: {"format": each.format, "compression": "gzip"}))
    found = load(tmp_path, *messages, state(3))
    assert found.error is None
    assert found.rows("s") == as_records(tmp_path, rows)


def _truncated(path: Path) -> dict[str, Any]:
    whole = gzip.compress(lines([{"id": n, "name": f"{n * 7919:x}"} for n in range(120_000)]))
    path.write_bytes(whole[:-20])
    return batch(path, compression="gzip")


def _not_gzip(path: Path) -> dict[str, Any]:
    path.write_bytes(lines(ROWS))
    return batch(path, compression="gzip")


def _not_parquet(path: Path) -> dict[str, Any]:
    path.write_bytes(lines(ROWS))
    return batch(path, form="parquet")


def _torn_zstd(path: Path) -> dict[str, Any]:
    path.write_bytes(zstd(lines(ROWS))[:-3])
    return batch(path, compression="zstd")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (batch, "No such file"),
        (_truncated, "ended before the end-of-stream marker"),
        (_not_gzip, "not compressed with gzip"),
        (_torn_zstd, "Truncated"),
        (_not_parquet, "Parquet magic bytes not found"),
        (lambda path: batch("https://host/f"), "somewhere else"),
        (lambda path: batch(path, form="csv"), "unknown encoding"),
        (lambda path: batch(path, compression="lz4"), "unknown encoding"),
        (lambda path: batch(path.parent), "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, broken: Callable[[Path], dict[str, Any]], says: str
) -> None:
    """The error names file, stream and reason; what an earlier STATE covers stays, no row of its epoch does."""
    (tmp_path / "good").write_bytes(lines([{"id": 1}]))
    torn = broken(tmp_path / "bad")
    good = batch(tmp_path / "good")
    found = load(tmp_path, good, state(1), good, torn, state(2), commit={"bytes": "1MiB"})
    assert isinstance(found.error, DataError)
    assert says in found.error.message
    assert "stream=s" in found.error.message
    assert found.error.hint
    assert (found.state, [row["id"] for row in found.rows("s")]) == (state(1)["value"], [1])


def test_a_batch_before_its_schema_is_an_error(tmp_path: Path) -> None:
    """As a RECORD is."""
    (tmp_path / "f").write_bytes(lines(ROWS))
    with pytest.raises(DataError, match="before its SCHEMA"):
        found = Pipe(tmp_path / "batch").load(wire(batch(tmp_path / "f")))
        raise found.error or AssertionError


def test_rows_of_a_stream_that_is_not_selected_are_ignored(tmp_path: Path) -> None:
    """They are counted, and a warning says so."""
    (tmp_path / "f").write_bytes(lines(ROWS))
    found = load(tmp_path, batch(tmp_path / "f"), deselected=["s"])
    assert (found.streams(), found.warnings) == ([], ["s: 3 record(s) ignored, the stream is not selected"])


def pipelinewise(file: Path, **more: Any) -> dict[str, Any]:
    """A BATCH message as `write_batch` of pipelinewise-singer-python writes it."""
    return {"type": "BATCH", "stream": "s", "filepath": str(file), "format": "jsonl", **more}


@pytest.mark.parametrize(
    ("pack", "more"),
    [
        (bytes, {}),
        (bytes, {"format": None, "compression": None, "batch_size": 3}),
        (gzip.compress, {"compression": "gzip", "batch_size": 3}),
        (gzip.compress, {}),
    ],
)
def test_a_batch_of_pipelinewise(tmp_path: Path, pack: Callable[[bytes], bytes], more: dict[str, Any]) -> None:
    """One file by its path, of bare records or of RECORD messages: the rows are those of RECORDs."""
    messages = [{"type": "RECORD", "stream": "s", "record": row} for row in ROWS]
    (tmp_path / "a%20b ä.jsonl").write_bytes(pack(lines(ROWS)))
    (tmp_path / "a b ä.jsonl").write_bytes(b"the path is no URI")
    found = load(tmp_path, pipelinewise(tmp_path / "a%20b ä.jsonl", **more), state(3))
    assert found.error is None
    assert (found.rows("s"), found.rejects()) == (as_records(tmp_path, ROWS), [])
    (tmp_path / "messages").write_bytes(pack(lines(messages)))
    again = Pipe(tmp_path / "messages-lake").load(wire(SCHEMA, pipelinewise(tmp_path / "messages", **more), state(3)))
    assert (again.rows("s"), again.rejects()) == (found.rows("s"), [])


def test_a_batch_has_the_extraction_time_of_its_message(tmp_path: Path) -> None:
    """`time_extracted` of the message is that of its rows."""
    (tmp_path / "f").write_bytes(lines([{"id": 1}]))
    message = pipelinewise(tmp_path / "f", time_extracted="1970-01-02T00:00:00.000Z")
    [row] = load(tmp_path, message, state(1), add_record_metadata=True).rows("s")
    assert row["_sdc_extracted_at"] == datetime(1970, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        (b'{"id":1}\n{"id":2}\n', {"batch_size": 3}, r"it has 2 record\(s\), and the message's batch_size says 3"),
        (b'{"id":1}\n', {"format": "csv"}, "unknown encoding .*format=csv"),
        (b'{"id":1}\n', {"compression": "gzip"}, "not compressed with gzip"),
        (b'{"id":1}\n', {"compression": "bz2"}, "unknown encoding .*compression=bz2"),
        (
            b'{"type":"RECORD","stream":"s","record":{"id":1}}\n{"type":"RECORD","stream":"t","record":{"id":2}}\n',
            {},
            "it has RECORD messages of this stream, and other lines",
        ),
    ],
)
def test_a_batch_of_pipelinewise_that_cannot_be_read(
    tmp_path: Path, text: bytes, more: dict[str, Any], says: str
) -> None:
    """It fails as a batch of the SDK does: no row of it is committed, and STATE stays before it."""
    (tmp_path / "f").write_bytes(text)
    (tmp_path / "good").write_bytes(lines([{"id": 7}]))
    good, bad = pipelinewise(tmp_path / "good", batch_size=1), pipelinewise(tmp_path / "f", **more)
    found = load(tmp_path, good, state(1), bad, state(2))
    assert isinstance(found.error, DataError)
    assert re.search(says, str(found.error))
    assert (found.state, [row["id"] for row in found.rows("s")]) == (state(1)["value"], [7])


def test_a_batch_that_is_none(tmp_path: Path) -> None:
    """Without encoding and manifest, and without a path, it is no Singer message."""
    found = load(tmp_path, {"type": "BATCH", "stream": "s", "filepath": None, "format": "jsonl"}, state(1))
    assert [reject["reason"] for reject in found.rejects()] == ["not a Singer message"]


def test_the_tap_may_delete_a_file_once_its_message_was_read(tmp_path: Path) -> None:
    """A file is read where its message stands, whenever its rows are written."""

    def says() -> Any:
        (tmp_path / "f").write_bytes(lines([{"id": 1}]))
        yield wire(SCHEMA, batch(tmp_path / "f"))
        (tmp_path / "f").write_bytes(lines([{"id": 2}]))
        yield wire(batch(tmp_path / "f"))
        (tmp_path / "f").unlink()
        yield wire(state(2))

    assert [row["id"] for row in Pipe(tmp_path / "batch").load(says()).rows("s")] == [1, 2]


def test_a_file_in_a_bucket(tmp_path: Path, s3: S3Server) -> None:
    """s3:// is read as `destination.s3` says, or the environment; a missing object is named; no copy is left."""
    s3.bucket("batches")
    s3.client().put_object(Bucket="batches", Key="x/a b.json.gz", Body=gzip.compress(lines(ROWS)))
    encoding = {"format": "jsonl", "compression": "gzip"}
    for options in (None, S3Options(endpoint_url=s3.endpoint)):
        reads = Batches(tmp_path, options)
        there = reads.records(Batch("s", encoding, ["s3://batches/x/a b.json.gz"], None))
        assert sum(records.lines for records in there) == 3
        with pytest.raises(DataError, match=r"a file of a BATCH cannot be read.*s3://batches/none"):
            list(reads.records(Batch("s", encoding, ["s3://batches/none"], None)))
    assert list(tmp_path.iterdir()) == []


def test_ticks_go_on_while_a_file_is_read(tmp_path: Path) -> None:
    """A signal, or a full spool, is heeded between the parts of a file, not at its end."""
    (tmp_path / "f").write_bytes(lines([{"id": n, "name": "x" * 1000} for n in range(3000)]))
    heard = SimpleNamespace(times=0)

    def tick() -> None:
        heard.times += 1
        if heard.times == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Batches(tick=tick).records(Batch("s", {"format": "jsonl"}, [(tmp_path / "f").as_uri()], None)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_a_line_that_does_not_end_is_an_error(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """It is not gathered without a limit, however well it is packed; what the last STATE covers is committed."""
    good, endless = tmp_path / "good.jsonl", tmp_path / "endless"
    good.write_bytes(lines([{"id": 1}]))
    endless.write_bytes(pack(b'{"id":2}\n{"id": 3, "' + b"x" * (70 << 20)))
    spool, commit = {"max_bytes": 8 << 20}, {"bytes": 1 << 20}
    found = load(tmp_path, SCHEMA, batch(good), state(1), batch(endless), state(2), spool=spool, commit=commit)
    assert isinstance(found.error, DataError)
    assert "a line has more than 67108864 bytes" in found.error.message
    assert [row["id"] for row in found.rows("s")] == [1]
    assert found.state == state(1)["value"]
    endless.write_bytes(lines([{"id": 2}]))
    done = load(tmp_path, SCHEMA, batch(endless), state(2))
    assert sorted(row["id"] for row in done.rows("s")) == [1, 2]
