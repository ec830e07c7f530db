"""The spool in a bucket: what a driver uploads is what an executor reads, and nothing of a dead run stays."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import EngineError, LakeError
from bridge.lake.commit.cleanup import abort_older
from bridge.lake.commit.open import OwnedPipeline, open_pipeline
from bridge.lake.lease import take
from bridge.lake.storage import Storage
from bridge.load.spool.folder import RULES, Segment
from bridge.load.spool.spool import Spool
from bridge.load.write.context import WriteContext
from bridge.load.write.shared_spool import (
    PackedBatch,
    SegmentSource,
    create_file,
    delete_files,
    new_file,
    open_file,
    pack,
    upload,
)

PENDING = ".bridge/p/pending"
UPLOADS = pytest.mark.parametrize("storage", ["local", "s3", "s3 uploads"], indirect=True)


@pytest.fixture
def context(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteContext:
    """A run's, on any host: its bucket is the storage of this test."""
    monkeypatch.setattr("bridge.load.write.context.open_storage", lambda *_: storage)
    return WriteContext(storage.uri, "p", "run", 1, str(tmp_path / "spool"), "zstd", {}, in_bucket=True)


def lines(first: int, count: int, width: int = 10) -> bytes:
    return b"".join(b'{"id": %d, "text": "%s"}\n' % (number, b"x" * width) for number in range(first, first + count))


def packed(context: WriteContext, *, count: int = 10, width: int = 10) -> tuple[PackedBatch, dict[Segment, bytes]]:
    """A batch of two streams, one with rules, and what each of its segments holds; not uploaded yet."""
    spool = Spool(Path(context.spool))
    for name in ("one", "two"):
        spool.put_schema(name, b'{"columns of": "%s"}' % name.encode())
    spool.put_schema(f"two{RULES}", b'{"type": "object"}')
    for turn in range(3):
        spool.append("a", "one", b"", lines(turn * count, count, width), count)
        spool.append("b", "two", b"", lines(turn, 1), 1)
    sealed = spool.seal(tasks=3, all_lines=True)
    assert sealed
    batch = pack(context, sealed)
    pairs = zip(batch.batch.segments, sealed.segments, strict=True)
    return batch, {to: spool.folder.read_segment(segment) for to, segment in pairs}


@UPLOADS
@pytest.mark.parametrize(("count", "width"), [(10, 10), (6000, 2000)])
def test_an_executor_reads_what_the_driver_sealed(
    storage: Storage, context: WriteContext, count: int, width: int
) -> None:
    """Each segment with its columns and rules, in any order; the driver's disk is free again; one object a bundle."""
    batch, contents = packed(context, count=count, width=width)
    upload(context, storage, batch)
    assert list(Path(context.spool, "segments").iterdir()) == []
    assert sorted(storage.list(PENDING)) == sorted(batch.names)
    elsewhere = replace(context, spool="/nowhere")
    with closing(SegmentSource(elsewhere)) as source:
        for segment, data in reversed(contents.items()):
            reader = source.of(segment)
            assert reader.read_segment(segment) == data
            assert reader.read_schema(segment.schema) == b'{"columns of": "%s"}' % segment.schema.encode()
            assert (reader.read_rules(segment.schema) is not None) is (segment.schema == "two")
    delete_files(context, batch.names)
    assert list(storage.list(PENDING)) == []
    delete_files(context, batch.names)


@UPLOADS
def test_a_file_of_one_executor_is_read_by_another(storage: Storage, context: WriteContext) -> None:
    """Rows that wait for a merge are there once their writer has closed the file, and for readers of tables never."""
    name, table = new_file(context), pa.table({"id": list(range(1000))})
    file = create_file(context, name)
    pq.write_table(table, file)
    with pytest.raises((LakeError, OSError, pa.ArrowInvalid)), open_file(context, name) as source:
        pq.read_table(source)
    file.close()
    with open_file(replace(context, spool="/nowhere"), name) as source:
        assert pq.read_table(source) == table
    assert [path for path in storage.walk("") if not path.startswith(".bridge/")] == []
    delete_files(context, [name])
    assert list(storage.list(PENDING)) == []


def test_an_executor_that_cannot_read_the_bucket_names_its_host(storage: Storage, context: WriteContext) -> None:
    """The error says on which host, and what to do; bytes that are not the driver's are no rows."""
    batch, contents = packed(context)
    segment = next(iter(contents))
    with pytest.raises(EngineError, match="an executor cannot read the spool host=") as caught:
        SegmentSource(context).of(segment)
    assert "share it" in caught.value.hint if storage.folder else "reach the bucket" in caught.value.hint
    upload(context, storage, batch)
    for other in (replace(segment, crc=segment.crc ^ 1), replace(segment, end=segment.end - 1)):
        with closing(SegmentSource(context)) as source, pytest.raises(EngineError, match="a segment changed"):
            source.of(segment).read_segment(other)


def test_a_dead_runs_spool_goes_with_the_next_run(storage: Storage, context: WriteContext) -> None:
    """The next run deletes what one left that died anywhere; one that only slept deletes nothing of a later run."""
    storage.prepare()
    with OwnedPipeline(storage, "p", "dead", take(storage, "p", "dead")) as dead:
        committer, dead.is_clean = dead.open(), False
        old = replace(context, generation=committer.generation)
        batch, _ = packed(old)
        upload(old, storage, batch)
        slept = committer
    with open_pipeline(storage, "p", "next") as committer:
        assert committer.generation > old.generation
        assert list(storage.list(PENDING)) == []
        live = replace(context, generation=committer.generation)
        batch, contents = packed(live)
        upload(live, storage, batch)
        abort_older(slept.log, slept.snapshot, slept.generation, fenced=True)
        with closing(SegmentSource(live)) as source:
            assert all(source.of(segment).read_segment(segment) == data for segment, data in contents.items())


def test_a_dead_runs_unfinished_upload_goes_with_the_next_run(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that dies in the middle of a large file leaves no parts that somebody pays for."""
    storage = s3.storage("s3://spool-uploads/team")
    monkeypatch.setattr("bridge.load.write.context.open_storage", lambda *_: storage)
    with OwnedPipeline(storage, "p", "dead", take(storage, "p", "dead")) as dead:
        committer, dead.is_clean = dead.open(), False
        context = WriteContext(storage.uri, "p", "dead", committer.generation, "", "zstd", {}, in_bucket=True)
        create_file(context, new_file(context)).write(bytes(17 << 20))
        assert [found.upload for found in storage.pending(PENDING)] != []
    with open_pipeline(storage, "p", "next"):
        assert list(storage.pending(PENDING)) == []
