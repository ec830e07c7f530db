"""The accounts between Spark and the commit: nothing is committed unless every line is accounted for exactly once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from bridge.errors import DataError, EngineError, LakeError
from bridge.lake.commit.open import open_committer
from bridge.lake.log import Log
from bridge.lake.paths import pipeline_key
from bridge.lake.records import CommitRecord
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.barriers import Barrier
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.rejects import write_rejects
from bridge.load.write.report import SegmentCount, WorkReport, failure
from bridge.load.write.task import write_bundle
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.settings.destination import LoadMethod
from tests.support.load import accounting
from tests.support.records import pending_file

SCHEMA = from_singer({"properties": {"id": {"type": ["null", "integer"]}}}, [])


class Desk:
    """A ledger over a bucket, with reports as an executor would write them."""

    def __init__(self, root: Path, *, max_rejects: int = 10, last: dict[str, Any] | None = None) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self.committer = open_committer(self.storage, "p", "run", last=last or {})
        self.spool = SpoolFolder(root / "spool")
        self.spool.create()
        self.spool.put_schema(SCHEMA.hash, SCHEMA.to_json())
        targets = {stream: TableLayout(f"p/{stream}") for stream in "stu"}
        self.job = WriteContext(str(root), "p", "run", self.committer.generation, str(root / "spool"), "zstd", targets)
        self.seen: list[CommitRecord] = []
        continued = {stream: stage.version for stream, stage in self.committer.snapshot.staged.items()}
        self.ledger = accounting(
            self.committer,
            self.job,
            continued=continued,
            max_rejects=max_rejects,
        )
        self._files = 0

    def manifest(self, lines: dict[str, int], seq: int = 1) -> SealedBatch:
        """One bundle a stream, with a segment of so many lines."""
        bundles = [[Segment(s, SCHEMA.hash, f"{seq}-{s}.jsonl", 0, n, n, 0, "")] for s, n in lines.items()]
        return SealedBatch(seq, bundles)

    def reports(self, manifest: SealedBatch, *, rejects: int = 0, versions: tuple[int | None, ...] = ()) -> list[Any]:
        """What executors report who did all of a manifest right."""
        return [self._report(bundle[0], rejects, versions) for bundle in manifest.bundles]

    def _report(self, segment: Segment, rejects: int, versions: tuple[int | None, ...]) -> WorkReport:
        self._files += 1
        name = f"part-{self.job.generation:010d}-000001-{self._files:032x}.parquet"
        source = pipeline_key("p", "pending", f"{name}.pending")
        with closing(self.storage.open_pending(source, f"p/s/{name}")) as file:
            file.write(b"rows")
        rows = segment.lines - rejects
        written = pending_file({"name": name, "source": source, "size": 4, "rows": rows}, segment.stream)
        lost = [write_rejects(self.storage, self.job, segment.stream, [{"raw": b"x"}] * rejects)] if rejects else []
        count = SegmentCount(segment.file, segment.start, rows, rejects)
        return WorkReport(files=[written], counts=[count], rejects=lost, versions={segment.stream: list(versions)})

    def load(self, lines: dict[str, int], **facts: Any) -> None:
        """Take in one manifest that went well."""
        manifest = self.manifest(lines)
        self.ledger.add(manifest, self.reports(manifest, **facts))

    def commit(self, barrier: Barrier, through: int) -> None:
        """Prepare and make a commit."""
        if record := self.ledger.commit(self.ledger.prepare(barrier, through)):
            self.seen.append(record)

    @property
    def head(self) -> int:
        return Log(self.storage, "p").head()

    def names(self, stream: str) -> list[str]:
        return list(self.committer.snapshot.tables[stream].files)


def barrier(
    state: Any, publish: dict[str, LoadMethod] | None = None, staged: dict[str, int] | None = None, **facts: Any
) -> Barrier:
    schemas: dict[str, TableSchema] = facts.get("schemas") or dict.fromkeys("stu", SCHEMA)
    return Barrier(
        state,
        False,
        publish or {},
        staged or {},
        schemas,
        facts.get("end", False),
        extends=frozenset(facts.get("extends", ())),
    )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_conservation(desk: Desk) -> None:
    """Reports that name each segment once, with rows plus rejects equal to its lines, are taken in."""
    desk.load({"s": 5, "t": 3}, rejects=1)
    desk.commit(barrier({"n": 1}, {"s": "append-only", "t": "append-only"}), through=1)
    (record,) = desk.seen
    assert {change.stream: change.adds[0].rows for change in record.tables} == {"s": 4, "t": 2}
    assert (record.through, record.state, desk.ledger.rejected) == (1, {"n": 1}, 2)
    assert [reject.lines for reject in record.rejects] == [1, 1]


def _count(**facts: Any) -> Callable[[list[WorkReport]], None]:
    """Have the first count say something else."""

    def change(reports: list[WorkReport]) -> None:
        reports[0].counts[0] = structs.replace(reports[0].counts[0], **facts)

    return change


def _fewer(reports: list[WorkReport]) -> None:
    reports[0].files[0] = structs.replace(reports[0].files[0], rows=1)


WRONG: dict[str, Callable[[list[WorkReport]], Any]] = {
    "a segment is missing": lambda reports: reports.pop(),
    "no report at all": lambda reports: reports.clear(),
    "a segment twice": lambda reports: reports.append(copy.deepcopy(reports[0])),
    "a segment twice in one report": lambda reports: reports[0].counts.append(reports[0].counts[0]),
    "a row too few": _count(rows=4),
    "a row too many": _count(rows=6),
    "a segment of another manifest": _count(file="9-s.jsonl"),
    "another slice of the segment": _count(start=1),
    "a file with fewer rows than counted": _fewer,
    "a file that is not in the report": lambda reports: reports[0].files.clear(),
    "a file twice": lambda reports: reports[0].files.append(reports[0].files[0]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_add_up_is_not_committed(desk: Desk, what: str) -> None:
    """Anything lost, doubled or mixed up between the spool and the files ends the run before any commit."""
    manifest = desk.manifest({"s": 5, "t": 3})
    reports = desk.reports(manifest)
    WRONG[what](reports)
    with pytest.raises(EngineError, match=r"does not add up batch=1 lines=8") as caught:
        desk.ledger.add(manifest, reports)
    assert "nothing was committed" in caught.value.hint
    assert (desk.head, desk.seen, desk.ledger.rejected) == (0, [], 0)


@pytest.mark.parametrize("error", [LakeError("disk full", hint="free space"), DataError("bad", hint="mend")])
def test_failure_on_an_executor(desk: Desk, error: LakeError | DataError) -> None:
    """What an executor reported as failed is raised here as the same error, with its hint."""
    manifest = desk.manifest({"s": 5, "t": 3})
    with pytest.raises(type(error)) as caught:
        desk.ledger.add(manifest, [desk.reports(manifest)[0], failure(error)])
    assert (caught.value.message, caught.value.hint) == (error.message, error.hint)


def test_many_partitions_warn(desk: Desk) -> None:
    """Rows of more than a thousand partitions at once are stored, and warned of once a stream."""
    for seq, folders in enumerate((1000, 1001, 2000), 1):
        manifest = desk.manifest({"s": 5}, seq)
        (report,) = desk.reports(manifest)
        desk.ledger.add(manifest, [structs.replace(report, folders={"s": folders})])
        assert len(desk.ledger.warnings()) == (folders > 1000), folders
    assert "s: rows of 1,001 partitions at once" in desk.ledger.warnings()[0]


def test_rejects_limit(desk: Desk) -> None:
    """As many rejects as allowed pass, over all manifests of the run; one more fails and says where they are."""
    desk.load({"s": 20}, rejects=6)
    desk.load({"s": 20}, rejects=4)
    with pytest.raises(DataError, match="too many rejects rejected=11 max=10") as caught:
        desk.ledger.reject(write_rejects(desk.storage, desk.job, None, [{"raw": b"hello"}]))
    assert "rejects/_tap/" in str(caught.value)
    assert desk.head == 0


def test_rejects_are_named_once(desk: Desk) -> None:
    """A reject file belongs to one commit only."""
    desk.load({"s": 5}, rejects=1)
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    desk.load({"s": 5})
    desk.commit(barrier({"n": 2}, {"s": "append-only"}), through=2)
    assert [len(record.rejects) for record in desk.seen] == [1, 0]


def test_held_files_wait(desk: Desk) -> None:
    """What a barrier does not publish stays pending and is published, once, by the barrier that does."""
    desk.load({"s": 5, "t": 3})
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    assert set(desk.committer.snapshot.tables) == {"s"}
    desk.load({"t": 2})
    desk.commit(barrier({"n": 2}, {"s": "append-only", "t": "append-only"}), through=2)
    assert [change.stream for change in desk.seen[1].tables] == ["t"]
    assert (desk.committer.snapshot.tables["t"].rows, len(desk.names("t")), len(desk.names("s"))) == (5, 2, 1)


def test_replace_removes_what_was_there(desk: Desk) -> None:
    """A swap names every file of the old table, and the table is the new files then."""
    desk.load({"s": 5})
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    old = desk.names("s")
    desk.load({"s": 4})
    desk.commit(barrier({"n": 2}, {"s": "overwrite"}), through=2)
    (change,) = desk.seen[1].tables
    assert (change.mode, change.removes, desk.committer.snapshot.tables["s"].rows) == ("replace", old, 4)
    assert {path.name for path in (desk.root / "p/s").iterdir()} == set(desk.names("s"))


@pytest.mark.parametrize(("mode", "rows"), [("overwrite", 0), ("append-only", 5)])
def test_stream_without_rows_at_the_end(desk: Desk, mode: LoadMethod, rows: int) -> None:
    """At the clean end a stream without rows has a table that opens: emptied if replaced, else as it was."""
    desk.load({"s": 5})
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    desk.commit(barrier({"n": 2}, {"s": mode, "t": mode}, end=True), through=1)
    assert desk.committer.snapshot.tables["s"].rows == rows
    (name,) = desk.names("t")
    empty = pq.ParquetFile(desk.root / "p/t" / name)
    assert (empty.metadata.num_rows, empty.schema_arrow.names) == (0, ["id"])


def test_nothing_to_publish_before_the_end(desk: Desk) -> None:
    """A stream without rows is left alone at a barrier in the middle; a STATE alone is still committed, once."""
    desk.commit(barrier({"n": 1}, {"s": "append-only", "t": "overwrite"}), through=0)
    desk.commit(barrier({"n": 1}, {"s": "append-only", "t": "overwrite"}), through=0)
    assert [record.tables for record in desk.seen] == [[]]
    assert (desk.head, desk.committer.snapshot.state) == (1, {"n": 1})


def test_staged_files_are_named_and_adopted(tmp_path: Path) -> None:
    """A run that adopts a half loaded table publishes the files of both runs; they stay pending until then."""
    first = Desk(tmp_path)
    first.load({"t": 3}, versions=(7,))
    first.commit(barrier({"n": 1}, staged={"t": 7}), through=1)
    assert first.committer.snapshot.staged["t"].version == 7
    assert "t" not in first.committer.snapshot.tables
    second = Desk(tmp_path, last={"closed": 1})
    second.load({"t": 2}, versions=(7,))
    second.commit(barrier({"n": 2}, {"t": "overwrite"}), through=1)
    assert (second.committer.snapshot.tables["t"].rows, second.committer.snapshot.staged) == (5, {})


def test_a_swapped_table_is_extended(tmp_path: Path) -> None:
    """The log says which version a table is of; a later run adds to it, and rows of another version are refused."""
    first = Desk(tmp_path)
    first.load({"s": 3, "t": 3}, versions=(7,))
    first.commit(barrier({"n": 1}, {"s": "overwrite", "t": "append-only"}), through=1)
    second = Desk(tmp_path, last={"closed": 1})
    assert {s: table.version for s, table in second.committer.snapshot.tables.items()} == {"s": 7, "t": None}
    second.load({"s": 2}, versions=(7,))
    second.commit(barrier({"n": 2}, {"s": "overwrite"}, extends="s"), through=1)
    assert (second.committer.snapshot.tables["s"].rows, second.committer.snapshot.tables["s"].version) == (5, 7)
    second.load({"s": 1}, versions=(8,))
    with pytest.raises(DataError, match="of several versions"):
        second.commit(barrier({"n": 3}, {"s": "overwrite"}, extends="s"), through=2)


def test_discarded_staged_files_are_not_published(tmp_path: Path) -> None:
    """If the tap started the table again, what an earlier run staged is not in it."""
    first = Desk(tmp_path)
    first.load({"t": 3}, versions=(7,))
    first.commit(barrier({"n": 1}, staged={"t": 7}), through=1)
    second = Desk(tmp_path, last={"closed": 1})
    second.ledger.discard_staged(["t", "u"])
    second.load({"t": 2}, versions=(8,))
    second.commit(barrier({"n": 2}, staged={"t": 8}), through=1)
    assert [file.rows for file in second.committer.snapshot.staged["t"].files] == [2]


@pytest.mark.parametrize("versions", [(8,), (7, 8), (None,), (7, None)])
def test_mixed_versions_are_not_staged(desk: Desk, versions: tuple[int | None, ...]) -> None:
    """Rows of another version, or of none, among staged ones cannot be resumed: no commit counts on them."""
    desk.load({"t": 3}, versions=versions)
    with pytest.raises(DataError, match="of several versions stream=t") as caught:
        desk.commit(barrier({"n": 1}, staged={"t": 7}), through=1)
    assert ("--full" in caught.value.hint, desk.head) == (True, 0)


def test_schema_is_kept_by_its_hash(desk: Desk) -> None:
    """The columns that a commit names by hash are in the bucket before it is, the one for extra fields too."""
    manifest = desk.manifest({"s": 5})
    reports = desk.reports(manifest)
    reports[0].files[0] = structs.replace(reports[0].files[0], extra=True)
    reports[0].extra = {"s": {"surplus": 2}}
    desk.ledger.add(manifest, reports)
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    name = desk.committer.snapshot.tables["s"].schema
    kept = orjson.loads((desk.root / f".bridge/p/schemas/{name}.json").read_bytes())
    assert [column["name"] for column in kept["columns"]] == ["id", "_sdc_extra"]
    assert (kept["format"], desk.ledger.extra) == (1, {"s": {"surplus": 2}})


def test_a_great_loss_is_told(desk: Desk) -> None:
    """An overwrite that leaves less than half of the rows is done, and the operator is told."""
    desk.load({"s": 10})
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    for rows in (5, 2):
        desk.load({"s": rows})
        desk.commit(barrier({"n": rows + 1}, {"s": "overwrite"}), through=2)
    assert len(desk.ledger.warnings()) == 1
    assert "2 rows, it had 5" in desk.ledger.warnings()[0]


def test_reports_of_real_work_add_up(desk: Desk) -> None:
    """What the executors' code reports for real segments, rejects among them, is what the ledger expects."""
    lines = [b'{"type":"RECORD","stream":"s","record":{"id":%s}}\n' % value for value in (b"1", b'"two"', b"3")]
    segment = desk.spool.put_segment("s", SCHEMA.hash, b"".join(lines))
    batch = SealedBatch(1, [[segment]])
    desk.ledger.add(batch, [write_bundle(desk.job, 1, [segment])])
    desk.commit(barrier({"n": 1}, {"s": "append-only"}), through=1)
    assert (desk.committer.snapshot.tables["s"].rows, desk.ledger.rejected) == (2, 1)
