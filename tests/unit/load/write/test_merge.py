"""A merge leaves the table as a dict would: whatever the keys, the files, their order, and where batches end."""

from __future__ import annotations

import random
import resource
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bridge.load.write.merge.match
import bridge.load.write.merge.plan
import bridge.load.write.spill
import bridge.load.write.writer
from bridge.errors import LakeError
from bridge.lake.file_records import LiveFile
from bridge.lake.records import TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spool.folder import Segment, SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.merge.match import MergeSpec, VersionSweep
from bridge.load.write.merge.plan import Merged, Merger
from bridge.load.write.partition import Partition
from bridge.load.write.report import SpillFile
from bridge.load.write.shared_spool import open_file
from bridge.load.write.spill import CHANGE, Spill, with_message_order
from bridge.protocol.schema.table_schema import TableSchema

KEYS = {
    "int": st.sampled_from([0, 1, 2, -5, 2**63 - 1, None]),
    "text": st.sampled_from(["", "a", "A", "ä", "a\u0308", "日本", "\x00", "z" * 5000, None]),
    "float": st.sampled_from([0.0, -0.0, 1.5, -1e308, None]),
    "bool": st.sampled_from([True, False, None]),
    "decimal": st.sampled_from([Decimal("1.10"), Decimal("-0.01"), None]),
    "time": st.sampled_from([datetime(1, 1, 1, tzinfo=timezone.utc), datetime(2024, 2, 29, tzinfo=timezone.utc), None]),
}
TYPES = {
    "int": pa.int64(),
    "text": pa.string(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "decimal": pa.decimal128(38, 2),
    "time": pa.timestamp("us", "UTC"),
}
AT = datetime(2025, 1, 1, tzinfo=timezone.utc)
MIDNIGHT = datetime(2024, 1, 2, tzinfo=timezone.utc)

Row = dict[str, Any]


class Table:
    """One table in a folder, with the spool beside it; `apply` does what the ledger and a commit do."""

    def __init__(self, root: Path, schema: pa.Schema, keys: Sequence[str], **target: Any) -> None:
        self.root, self.schema, self.keys = root, schema, keys
        self.folder = root / "lake/shop/t"
        self.folder.mkdir(parents=True)
        spool = root / "spool"
        (spool / "merge").mkdir(parents=True)
        self.target = TableLayout("shop/t", keys=tuple(keys), **target)
        self.job = WriteContext(str(root / "lake"), "shop", "run", 1, str(spool), "zstd", {"t": self.target})
        self.merger = Merger(self.job, lambda work, payloads, *, cost: [work(self.job, one) for one in payloads])
        self.files: dict[str, LiveFile] = {}
        self.order = 0

    def spill(self, rows: Sequence[Row], versions: Sequence[int | None] | None = None) -> SpillFile:
        """Write rows as an executor does with one segment."""
        self.order += 1
        columns = {field.name: [row.get(field.name) for row in rows] for field in self.schema}
        table = pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in self.schema]))
        segment = Segment("t", "", "", 0, 0, len(rows), 0, "", self.order)
        version = None if versions is None else pa.array(versions, pa.int64())
        lacking = [[name for name in self.schema.names if name not in row] or None for row in rows]
        absent = pa.array(lacking, pa.list_(pa.string())) if self.target.changes else None
        rows_ = with_message_order(table, version, 1, segment, absent)
        spill = Spill(self.job, "t", rows_.schema, self.keys)
        spill.add(rows_)
        return spill.finish()

    def add_file(self, rows: Sequence[Row], group: int = 3) -> None:
        """Put a file into the table as an append-only load has left it."""
        name = f"part-{len(self.files):010d}.parquet"
        columns = {field.name: [row.get(field.name) for row in rows] for field in self.schema}
        pq.write_table(pa.table(columns, schema=self.schema), self.folder / name, row_group_size=group)
        self.files[name] = LiveFile(1, len(rows))

    def merge(
        self, came: list[SpillFile], *, sweep: VersionSweep | None = None, schema: pa.Schema | None = None
    ) -> Merged:
        self.schema = schema or self.schema
        batch = MergeSpec("t", TableSchema(self.schema).to_json(), 1, bool(self.target.hard_delete), sweep)
        merged = self.merger.merge(batch, TableState("shop/t", None, self.files), came)
        self.publish(merged)
        return merged

    def publish(self, merged: Merged) -> None:
        storage = LocalStorage(self.root / "lake")
        for name in merged.removes:
            (self.folder / name).unlink()
            del self.files[name]
        for add in merged.adds:
            path = self.folder / add.name
            path.parent.mkdir(exist_ok=True)
            (storage.root / add.source).rename(path)
            self.files[add.name] = add.live

    def rows(self) -> list[Row]:
        """Return what every reader of the folder sees."""
        files = sorted(self.folder.rglob("*.parquet"))
        assert len(files) == len(self.files)
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def key_of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


def oracle(lake: dict[Any, Row], rows: Sequence[Row], keys: Sequence[str], *, hard: bool) -> None:
    """What the documentation says, row by row: a deletion updates, everything else replaces.

    A column that a row has not got at all stays as it was.
    """
    for row in rows:
        key = key_of(row, keys)
        if row.get("_sdc_deleted_at") is None:
            before = lake.get(key, {})
            lake[key] = {name: row[name] if name in row else before.get(name) for name in [*row, "v", "w"]}
        elif hard:
            lake.pop(key, None)
        else:
            said = {name: value for name, value in row.items() if value is not None or name in keys}
            lake[key] = dict.fromkeys(row) | lake.get(key, {}) | said


def canonical(rows: Sequence[Row]) -> list[str]:
    return sorted(repr([(name, _plain(value)) for name, value in sorted(row.items())]) for row in rows)


def _plain(value: Any) -> Any:
    """Return a value so that equal ones look alike: zeros, and times in whatever class of zone."""
    return value.isoformat() if isinstance(value, datetime) else 0.0 if value == 0 and type(value) is float else value


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[str], list[Row], list[list[Row]]]:
    """Kinds of key columns, rows that an append-only table has already, and batches of rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3))
    names = [f"k{number}" for number in range(len(kinds))]
    key = st.fixed_dictionaries({name: KEYS[kind] for name, kind in zip(names, kinds, strict=True)})
    rest = st.fixed_dictionaries(
        {"v": st.one_of(st.none(), st.integers(0, 9)), "w": st.sampled_from([None, [], [1, None]])}
    )
    deleted = st.sampled_from([None, None, None, AT])
    row = st.builds(lambda k, r, d: k | r | {"_sdc_deleted_at": d}, key, rest, deleted)
    if draw(st.booleans()):
        lacks = st.sets(st.sampled_from(["v", "w"]))
        row = st.builds(
            lambda r, names: r if r["_sdc_deleted_at"] else {n: v for n, v in r.items() if n not in names}, row, lacks
        )
    batches = draw(st.lists(st.lists(row, max_size=12), min_size=1, max_size=5))
    return kinds, draw(st.lists(row, max_size=8)), batches


NONE = {"k0": True, "v": None, "w": None, "_sdc_deleted_at": None}
SAID_BETWEEN = (["bool"], [], [[*[NONE] * 7, NONE | {"v": 0}, NONE | {"_sdc_deleted_at": AT}]])
"""What a deletion lacks stands in a row between it and the one that it was read together with."""


CHANGED = {"k0": True, "v": None, "_sdc_deleted_at": None}
CHANGED_THEN_DELETED = (["bool"], [], [[NONE | {"v": 1, "w": [1]}], [CHANGED, {**NONE, "_sdc_deleted_at": AT}]])
"""A change says null of one column and nothing of the other; the deletion after it says nothing of both."""
DELETED_THEN_CHANGED = (["bool"], [], [[NONE | {"v": 1, "w": [1], "_sdc_deleted_at": AT}, CHANGED]])
"""What a deletion that takes the row says of it is nothing that a later change could keep."""


@settings(max_examples=100, deadline=None)
@example(story=SAID_BETWEEN, hard=False, seed=0, tiny=True, delta=False)
@example(story=CHANGED_THEN_DELETED, hard=False, seed=0, tiny=False, delta=False)
@example(story=DELETED_THEN_CHANGED, hard=True, seed=0, tiny=False, delta=False)
@given(story=stories(), hard=st.booleans(), seed=st.integers(0, 2**16), tiny=st.booleans(), delta=st.booleans())
def test_a_merge_is_what_a_dict_does(
    story: tuple[list[str], list[Row], list[list[Row]]], hard: bool, seed: int, tiny: bool, delta: bool
) -> None:
    """Any keys, composite, null, of any type; any interleaving, any split into batches, spills, ranges and files.

    Row groups, ranges and pieces are so small with `tiny` that a few rows make several of each.
    """
    kinds, _, batches = story
    names = [f"k{number}" for number in range(len(kinds))]
    fields = [*(pa.field(n, TYPES[kind]) for n, kind in zip(names, kinds, strict=True)), pa.field("v", pa.int64())]
    fields += [pa.field("w", pa.list_(pa.int64())), pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC"))]
    shuffle = random.Random(seed)
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(bridge.load.write.merge.plan, "_RANGE", 200)
            patch.setattr(bridge.load.write.merge.match, "_AT_ONCE", 300)
            patch.setattr(bridge.load.write.spill, "_PIECE", 200)
            patch.setattr(bridge.load.write.writer, "ROW_GROUP", 300)
        format_ = "delta" if delta else "parquet"
        table = Table(Path(root), pa.schema(fields), names, hard_delete=hard, format=format_, changes=True)
        lake: dict[Any, Row] = {}
        for batch in batches:
            came, at = [], 0
            while at < len(batch):
                size = shuffle.randint(1, 5)
                came.append(table.spill(batch[at : at + size]))
                at += size
            shuffle.shuffle(came)
            before = sum(file.rows for file in table.files.values())
            merged = table.merge(came)
            oracle(lake, batch, names, hard=hard)
            assert canonical(table.rows()) == canonical(list(lake.values()))
            counts = merged.counts
            assert counts["rows"] == len(batch) == sum(counts.values()) - counts["rows"]
            assert len(lake) <= before + counts["inserted"]
            assert not list(SpoolFolder(table.job.spool).spills.iterdir())


@settings(max_examples=30, deadline=None)
@given(story=stories(), groups=st.integers(1, 4), files=st.integers(1, 3))
def test_a_table_that_was_appended_to_has_each_touched_key_once(
    story: tuple[list[str], list[Row], list[list[Row]]], groups: int, files: int
) -> None:
    """Copies of a key in several files, or several times in one, become one row; untouched keys stay as they are."""
    kinds, before, batches = story
    names = [f"k{number}" for number in range(len(kinds))]
    fields = [*(pa.field(n, TYPES[kind]) for n, kind in zip(names, kinds, strict=True)), pa.field("v", pa.int64())]
    rows = [row | {"w": None, "_sdc_deleted_at": None} for row in before]
    batch = [row | {"w": None, "_sdc_deleted_at": None} for rows in batches for row in rows]
    with tempfile.TemporaryDirectory() as root:
        table = Table(Path(root), pa.schema(fields), names)
        for number in range(files):
            table.add_file(rows[number::files] * 2, groups)
        table.merge([table.spill(batch)] if batch else [])
        last = {repr(key_of(row, names)).replace("-0.0", "0.0"): row for row in batch}
        untouched = [row for row in rows * 2 if repr(key_of(row, names)).replace("-0.0", "0.0") not in last]
        wanted = [{name: row.get(name) for name in [*names, "v"]} for row in [*untouched, *last.values()]]
        assert canonical(table.rows()) == canonical(wanted)


@settings(max_examples=40, deadline=None)
@given(story=stories(), hard=st.booleans(), delta=st.booleans(), groups=st.integers(1, 4))
def test_what_a_merge_changes_is_noted_row_by_row(
    story: tuple[list[str], list[Row], list[list[Row]]], hard: bool, delta: bool, groups: int
) -> None:
    """For views: the rows before, with what is noted and all rows of other new files, are the rows afterwards."""
    kinds, before, batches = story
    names = [f"k{number}" for number in range(len(kinds))]
    fields = [*(pa.field(n, TYPES[kind]) for n, kind in zip(names, kinds, strict=True)), pa.field("v", pa.int64())]
    fields += [pa.field("w", pa.list_(pa.int64())), pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC"))]
    target = {"hard_delete": hard, "format": "delta" if delta else "parquet", "changes": True, "readable": True}
    with tempfile.TemporaryDirectory() as root:
        table = Table(Path(root), pa.schema(fields), names, **target)
        for number in range(2):
            table.add_file([{"w": None} | row for row in before[number::2] * 2], groups)
        for batch in batches:
            rows = Counter(canonical(table.rows()))
            merged = table.merge([table.spill(batch)])
            assert {one.old for one in merged.changes} == set(merged.removes)
            for row in noted(table, merged):
                sign = row.pop(CHANGE)
                rows[canonical([row])[0]] += sign
            rewritten = {one.new for one in merged.changes}
            for add in merged.adds:
                if add.name not in rewritten:
                    rows.update(canonical(pq.ParquetFile(table.folder / add.name).read().to_pylist()))
            assert +rows == Counter(canonical(table.rows()))
            assert -rows == Counter()


def noted(table: Table, merged: Merged) -> list[Row]:
    """The rows that a merge has noted as changed."""
    names = [one.name for one in merged.changes if one.name]
    rows: list[Row] = []
    for name in names:
        with open_file(table.job, name) as file:
            rows += pq.read_table(file).to_pylist()
    return rows


SIMPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


def simple(root: Path, **target: Any) -> Table:
    """Return a table of three files with ids 0..29, ten each."""
    table = Table(root, SIMPLE, ["id"], **target)
    for start in (0, 10, 20):
        table.add_file([{"id": n, "v": "old"} for n in range(start, start + 10)])
    return table


def test_only_files_with_a_match_are_rewritten_and_keep_their_names(tmp_path: Path) -> None:
    """One of three files has the key; the others are not touched, and what is new goes into a file of its own."""
    table = simple(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in table.folder.iterdir()}
    merged = table.merge([table.spill([{"id": 12, "v": "new"}, {"id": 31, "v": "new"}])])
    assert merged.removes == ["part-0000000001.parquet"]
    kept = [path for path in before if path.stat().st_mtime_ns == before[path]]
    assert len(kept) == 2
    assert set(before) < set(table.folder.iterdir())
    assert {row["id"]: row["v"] for row in table.rows() if row["v"] == "new"} == {12: "new", 31: "new"}
    assert merged.counts == {"rows": 2, "inserted": 1, "updated": 1, "superseded": 0, "deleted": 0}
    order = pq.read_table(table.folder / "part-0000000001.parquet").column("id").to_pylist()
    assert order == list(range(10, 20))


def test_unchanged_rows_of_a_rewritten_file_are_not_noted(tmp_path: Path) -> None:
    """A view over the table reads two rows of the file, and no file twice; without views nothing is noted."""
    assert not simple(tmp_path / "without").merge([]).changes
    table = simple(tmp_path / "with", readable=True)
    merged = table.merge([table.spill([{"id": 12, "v": "new"}, {"id": 31, "v": "new"}])])
    assert noted(table, merged) == [{"id": 12, "v": "old", CHANGE: -1}, {"id": 12, "v": "new", CHANGE: 1}]
    assert [(one.old, one.new) for one in merged.changes] == [("part-0000000001.parquet",) * 2]


def test_footers_are_read_once_a_run_and_spare_what_cannot_match(tmp_path: Path) -> None:
    """A second merge asks for the ranges of the files only that are new or rewritten; none is opened in vain."""
    table = simple(tmp_path)
    asked: list[tuple[str, Any]] = []
    do = table.merger._each
    table.merger._each = lambda work, payloads, *, cost: (
        asked.extend((work.__name__, p) for p in payloads),
        do(work, payloads, cost=cost),
    )[1]
    table.merge([table.spill([{"id": 25, "v": "new"}])])
    table.merge([table.spill([{"id": 5, "v": "new"}])])
    found = [names for work, (_, names, _) in ((w, p) for w, p in asked if w == "find_ranges")]
    assert found == [[f"part-000000000{n}.parquet" for n in range(3)], ["part-0000000002.parquet"]]
    assert [p.name for work, p in asked if work == "rewrite"] == ["part-0000000002.parquet", "part-0000000000.parquet"]


def test_a_disk_that_is_full_while_a_row_group_is_written(tmp_path: Path) -> None:
    """The error names the file, nothing half written is left, no thread goes on, and the table is as it was."""
    table, dice = Table(tmp_path, SIMPLE, ["id"]), random.Random(1)
    table.add_file([{"id": n, "v": dice.randbytes(2000).hex()} for n in range(300)], group=100)
    before, came = table.rows(), [table.spill([{"id": n, "v": "new"} for n in (5, 105, 205)])]
    threads, limits = set(threading.enumerate()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))  # the first row group is smaller
    try:
        with pytest.raises(LakeError, match="cannot write a pending file: File too large"):
            table.merge(came)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    pending = tmp_path / "lake/.bridge/shop/pending"
    assert (list(pending.iterdir()), set(threading.enumerate()) - threads, table.rows()) == ([], set(), before)
    table.merge(came)
    assert [row["id"] for row in table.rows() if row["v"] == "new"] == [5, 105, 205]


def test_a_file_whose_last_row_went_is_gone(tmp_path: Path) -> None:
    """A hard delete of all rows of a file leaves no empty file behind."""
    schema = SIMPLE.append(pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC")))
    table = Table(tmp_path, schema, ["id"], hard_delete=True)
    table.add_file([{"id": 1, "v": "a"}])
    table.add_file([{"id": 2, "v": "b"}])
    merged = table.merge([table.spill([{"id": 1, "v": None, "_sdc_deleted_at": AT}, {"id": 9, "_sdc_deleted_at": AT}])])
    assert [row["id"] for row in table.rows()] == [2]
    assert merged.counts == {"rows": 2, "inserted": 0, "updated": 0, "superseded": 0, "deleted": 2}
    assert [file.rows for file in merged.empty] == [0]


def test_rows_get_new_columns_and_a_key_its_new_type(tmp_path: Path) -> None:
    """A table's older files are read with the newest columns: added ones null, wider keys still the same keys."""
    table = simple(tmp_path)
    schema = pa.schema([pa.field("id", pa.decimal128(38, 0)), pa.field("v", pa.string()), pa.field("w", pa.int64())])
    table.schema = schema
    table.merge([table.spill([{"id": Decimal(3), "v": "new", "w": 7}, {"id": Decimal(10**20), "v": "new", "w": 8}])])
    rows = {int(row["id"]): row for row in table.rows()}
    assert len(rows) == 31
    assert rows[3] == {"id": Decimal(3), "v": "new", "w": 7}
    assert rows[4] == {"id": Decimal(4), "v": "old", "w": None}


KEYS_OF_A_NEW_TYPE = {
    "int-to-string": (pa.int64(), pa.string(), [9, 10, 11, 100], ["9", "10", "11", "100", "a"]),
    "bool-to-string": (pa.bool_(), pa.string(), [False, True], ["false", "true", "x"]),
    "date-to-string": (pa.date32(), pa.string(), [date(2024, 1, 2)], ["2024-01-02", "x"]),
    "date-to-date-time": (pa.date32(), pa.timestamp("us", "UTC"), [date(2024, 1, 2), date(2025, 1, 1)], [MIDNIGHT, AT]),
    "int-to-number": (pa.int64(), pa.float64(), [1, 2, 2**60], [1.0, 1.5, 2.0, float(2**60)]),
    "int-to-decimal": (pa.int64(), pa.decimal128(38, 2), [1, 2], [Decimal("1.00"), Decimal("1.50"), Decimal("2.00")]),
    "number-to-string": (pa.float64(), pa.string(), [1.5, 12.5], ["1.5", "12.5", "a"]),
}


@pytest.mark.parametrize(("old", "new", "before", "after"), KEYS_OF_A_NEW_TYPE.values(), ids=KEYS_OF_A_NEW_TYPE)
def test_a_key_that_changes_its_type_in_a_commit_of_several_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: pa.DataType, new: pa.DataType, before: Any, after: Any
) -> None:
    """Files and spills of the older type are merged beside newer ones: each key of the new type is there once."""
    monkeypatch.setattr(bridge.load.write.merge.plan, "_RANGE", 20)
    table = Table(tmp_path, pa.schema([pa.field("id", old), pa.field("v", pa.string())]), ["id"])
    table.add_file([{"id": key, "v": "old"} for key in before], group=1)
    came = [table.spill([{"id": key, "v": "between"}]) for key in before]
    table.schema = pa.schema([pa.field("id", new), pa.field("v", pa.string())])
    came += [table.spill([{"id": key, "v": "new"}]) for key in after]
    merged = table.merge(came)
    assert sorted((row["id"], row["v"]) for row in table.rows()) == [(key, "new") for key in sorted(after)]
    assert merged.counts["inserted"] == len(after) - len(before)


def test_a_row_moves_when_its_partition_changes(tmp_path: Path) -> None:
    """The row is in the folder of its new value and in no other."""
    table = Table(tmp_path, SIMPLE, ["id"], partition_by=(Partition("v"),))
    table.merge([table.spill([{"id": n, "v": "a" if n < 5 else "b"} for n in range(10)])])
    table.merge([table.spill([{"id": 1, "v": "b"}, {"id": 2, "v": "a"}, {"id": 11, "v": "c"}])])
    folders = {name.rpartition("/")[0]: [] for name in table.files}
    for name in table.files:
        folders[name.rpartition("/")[0]] += pq.ParquetFile(table.folder / name).read().column("id").to_pylist()
    assert {name: sorted(ids) for name, ids in folders.items()} == {
        "v=a": [0, 2, 3, 4],
        "v=b": [1, 5, 6, 7, 8, 9],
        "v=c": [11],
    }


def test_a_marked_row_stays_in_its_partition(tmp_path: Path) -> None:
    """A deletion that names another partition leaves the row where it is, with the value of its folder."""
    schema = pa.schema([*SIMPLE, pa.field("w", pa.string()), pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC"))])
    table = Table(tmp_path, schema, ["id"], partition_by=(Partition("v"),))
    table.merge([table.spill([{"id": n, "v": "a", "w": "old"} for n in (1, 2, 3)])])
    gone = {"_sdc_deleted_at": AT}
    table.merge([table.spill([{"id": 1, "v": "b", "w": "new"} | gone, {"id": 2, "v": "a"} | gone, {"id": 3} | gone])])
    assert [name.rpartition("/")[0] for name in table.files] == ["v=a"]
    rows = {row["id"]: (row["v"], row["w"], row["_sdc_deleted_at"]) for row in table.rows()}
    assert rows == {1: ("a", "new", AT), 2: ("a", "old", AT), 3: ("a", "old", AT)}


VERSIONED = pa.schema(
    [*SIMPLE, pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC")), pa.field("_sdc_table_version", pa.int64())]
)


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize(("old", "new"), [(1700000000, 1700000001000), (1700000000000, 1700000001), (1, 2)])
def test_older_versions_go_with_a_sweep(tmp_path: Path, hard: bool, old: int, new: int) -> None:
    """Rows of older versions are deleted, or marked once, in seconds and in milliseconds; others and null ones stay."""
    table = Table(tmp_path, VERSIONED, ["id"], hard_delete=hard)
    table.merge([table.spill([{"id": n, "v": "old"} for n in range(4)], [old, old, old, None])])
    table.merge([table.spill([{"id": 9, "v": "old"}], [old])])
    at = None if hard else int(AT.timestamp() * 1000)
    merged = table.merge(
        [table.spill([{"id": 0, "v": "new"}, {"id": 5, "v": "new"}], [new, new])], sweep=VersionSweep(new, at)
    )
    rows = {row["id"]: (row["v"], row["_sdc_deleted_at"]) for row in table.rows()}
    kept = {0: ("new", None), 3: ("old", None), 5: ("new", None)}
    assert rows == kept | ({} if hard else dict.fromkeys((1, 2, 9), ("old", AT)))
    assert merged.swept == 3
    again = table.merge([], sweep=VersionSweep(new, at))
    assert (again.adds, again.removes, again.swept) == ([], [], 0)
