"""A filter finds the rows that are there, in each table format, by each engine, whatever the statistics say."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bridge.lake.commit.manifests import write_manifests
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.operate.verify.check import verify
from bridge.operate.verify.mend import repair
from bridge.settings.options import Pipeline
from tests.support.filters import OPERATORS, Asked, Places, wrong
from tests.support.iceberg_lake import catalog_of
from tests.support.lake import closed
from tests.support.tables import INTEGER, STRING, Shop

QUIET = list(HealthCheck)
UTC = timezone.utc
INF, NAN = float("inf"), float("nan")
TOP = "\U0010ffff"
TEXTS = [
    "",
    "a",
    "b",
    "é",
    "￿",
    "\U00010000",
    "x" * 64,
    "x" * 65,
    "x" * 5000,
    "x" * 5000 + "y",
    TOP * 70 + "z",
    "a\x00b",
]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 123999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def of(type_: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", type_], **more}


KINDS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "n": (of("integer"), [0, 1, -1, 2**63 - 1, -(2**63)]),
    "wide": (of("integer", maximum=10**30), [0, 1, -1, 10**30, -(10**25)]),
    "price": (of("number", multipleOf=0.01), [Decimal("0.00"), Decimal("1.25"), Decimal("-12345678901234567.89")]),
    "tiny": (
        of("number", multipleOf=1e-10),
        [Decimal("0.0000000000"), Decimal("0.0000000001"), Decimal("-2.5000000000")],
    ),
    "ratio": (of("number"), [0.0, -0.0, 1.5, -2.5, INF, -INF, 5e-324, 1e308, NAN]),
    "open": (of("boolean"), [True, False]),
    "name": (of("string"), TEXTS),
    "day": (of("string", format="date"), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (of("string", format="date-time"), TIMES),
    "a.b c": (of("integer"), [3, 4]),
}
"""Columns by name: what a SCHEMA says of them, and values at which bounds go wrong."""


def written(value: Any) -> Any:
    """A value as a tap writes it."""
    return value.isoformat() if isinstance(value, date) else value


def rows_of(shop: Shop) -> tuple[pa.Table, list[str]]:
    """The rows of the table `s`, by the commit log and without any filter, and its files."""
    log = Log(shop.storage, "shop")
    table = log.snapshot(log.head()).tables["s"]
    files = [f"{shop.root}/{table.folder}/{name}" for name in sorted(table.files)]
    parts = [pq.ParquetFile(file).read().replace_schema_metadata() for file in files]
    return pa.concat_tables(parts, promote_options="permissive"), files


def places_of(shop: Shop, format_: str, files: list[str]) -> Places:
    if format_ == "delta":
        return Places(files, delta=f"{shop.root}/shop/s")
    if format_ == "iceberg":
        with catalog_of(shop.storage) as catalog:
            return Places(files, iceberg=catalog.load_table("shop.s"))
    return Places(files)


def filters(draw: Any, rows: pa.Table) -> list[Asked]:
    """Some filters of each column, by values that are there and by others."""
    asked = []
    for name in KINDS:
        if name in rows.schema.names:
            kind = rows.schema.field(name).type
            for operator in draw(st.lists(st.sampled_from(OPERATORS), min_size=2, max_size=3, unique=True)):
                values = [value for value in KINDS[name][1] if value == value]
                asked.append(Asked(name, operator, draw(st.sampled_from(values)), kind))
    return asked


@st.composite
def loads(draw: Any) -> tuple[list[dict[str, Any]], list[tuple[list[str], list[dict[str, Any]]]]]:
    """Two or three loads, each with more columns than the one before, and their rows."""
    names = draw(st.permutations(list(KINDS)))
    first = draw(st.integers(2, len(names)))
    made = []
    for load in range(draw(st.integers(1, 3))):
        columns = names[: first + load]
        row = st.fixed_dictionaries(
            {"id": st.integers(0, 9)},
            optional={name: st.sampled_from([None, *KINDS[name][1]]).map(written) for name in columns},
        )
        made.append((columns, draw(st.lists(row, min_size=1, max_size=4))))
    return made


def fill(shop: Shop, made: list[tuple[list[str], list[dict[str, Any]]]]) -> None:
    for columns, records in made:
        properties = {"id": {"type": "integer"}} | {name: KINDS[name][0] for name in columns}
        shop.load("s", properties, records, keys=("id",))


def check(format_: str, shop: Shop, draw: Any) -> None:
    rows, files = rows_of(shop)
    assert list(wrong(format_, rows, places_of(shop, format_, files), filters(draw, rows))) == []


FORMATS = pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
KEYS = pytest.mark.parametrize("keys", [(), ("id",)], ids=["append", "upsert"])


def look(format_: str, keys: tuple[str, ...], data: st.DataObject) -> None:
    """Load, with columns that come later and merges by key; filter; go back to the first load; filter again."""
    with TemporaryDirectory() as folder:
        shop = Shop(Path(folder), format=format_, keys=keys)
        made = data.draw(loads())
        fill(shop, made)
        check(format_, shop, data.draw)
        if len(made) > 1 and data.draw(st.booleans()):
            roll_back(shop.storage, "shop", 1)
            check(format_, shop, data.draw)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning:polars.exceptions.PerformanceWarning")
@KEYS
@FORMATS
@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=QUIET)
@given(data=st.data())
def test_filters_find_what_is_there(format_: str, keys: tuple[str, ...], data: st.DataObject) -> None:
    """Each engine finds as many rows in the table as it would find in memory."""
    look(format_, keys, data)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning:polars.exceptions.PerformanceWarning")
@pytest.mark.slow
@KEYS
@FORMATS
@settings(max_examples=200, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=QUIET)
@given(data=st.data())
def test_filters_find_what_is_there_for_long(format_: str, keys: tuple[str, ...], data: st.DataObject) -> None:
    """The same, with more tables."""
    look(format_, keys, data)


def dataset(folder: Path) -> Any:
    return DeltaTable(folder).to_pyarrow_dataset()


def found(folder: Path, filter_: Any) -> int:
    return int(dataset(folder).to_table(filter=filter_).num_rows)


FIELD = pc.field
ASKED = {
    "a boolean": (FIELD("open") == True, 1),  # noqa: E712 - Arrow's expression
    "beside a long text": (FIELD("note") == "a", 1),
    "a long text": (FIELD("note") == "x" * 5000, 1),
    "infinity": (FIELD("ratio") == INF, 1),
    "beside infinity": (FIELD("ratio") == 1.5, 1),
    "a small decimal": (FIELD("tiny") == Decimal("0.0000000001"), 1),
    "null in a younger column": (FIELD("later").is_null(), 3),
    "null everywhere": (FIELD("nothing").is_null(), 4),
    "the year 9999": (FIELD("at") > datetime(9999, 12, 31, 23, 59, 59, 999998, tzinfo=UTC), 1),
}
PROPERTIES = {
    "id": {"type": "integer"},
    "open": of("boolean"),
    "note": of("string"),
    "ratio": of("number"),
    "tiny": of("number", multipleOf=1e-10),
    "nothing": of("string"),
    "at": of("string", format="date-time"),
}


def fill_hazards(shop: Shop) -> None:
    """What the statistics of older versions misled readers about."""
    first = {"open": True, "note": "x" * 5000, "ratio": INF, "tiny": Decimal("0.0000000001")}
    second = {"open": False, "note": "a", "ratio": 1.5, "tiny": Decimal("0.0000000000")}
    rows = [{"id": 1, "at": "9999-12-31T23:59:59.999999Z", **first}, {"id": 2, **second}, {"id": 3}]
    shop.load("s", PROPERTIES, rows, keys=("id",))
    shop.load("s", PROPERTIES | {"later": of("integer")}, [{"id": 4, "later": 7}], keys=("id",))


@pytest.mark.parametrize("asked", ASKED)
def test_a_delta_table_as_it_is_written_now(tmp_path: Path, asked: str) -> None:
    """What delta-rs' own writer gets right is found, and what it gets wrong as well."""
    shop = Shop(tmp_path, format="delta")
    fill_hazards(shop)
    filter_, rows = ASKED[asked]
    assert found(tmp_path / "lake/shop/s", filter_) == rows


GOLDEN = Path(__file__).parents[3] / "data" / "delta_that_misleads.zip"
"""The lake that `fill_hazards` made before statistics were whole, without the manifests, which name its place."""


@pytest.fixture
def older(tmp_path: Path) -> LocalStorage:
    """A lake with a Delta table by an older version, whose statistics mislead."""
    with ZipFile(GOLDEN) as golden:
        golden.extractall(tmp_path / "lake")
    storage = LocalStorage(tmp_path / "lake")
    repair_manifests(storage)
    return storage


def repair_manifests(storage: LocalStorage) -> None:
    committer = open_committer(storage, "shop", "run", last=closed(Log(storage, "shop").head()))
    write_manifests(committer.head, {"s": False})


def test_verify_finds_and_mends_a_table_that_misleads(older: LocalStorage, tmp_path: Path) -> None:
    """The table's log says the statistics anew: no file and no row changes, time travel stays, and runs go on."""
    table = tmp_path / "lake/shop/s"
    assert found(table, FIELD("open") == True) == 0  # noqa: E712 - Arrow's expression
    before, files = DeltaTable(table), sorted(path.name for path in table.glob("*.parquet"))
    (finding,) = (one for one in verify(older, "shop").findings if one.check == "table log")
    assert finding.status == "error"
    assert finding.text == "has statistics of 1 file(s) by which some readers leave out rows that a filter asks for"
    _, report = repair(older, "shop")
    assert report.findings == []
    assert {name: found(table, filter_) for name, (filter_, _) in ASKED.items()} == {
        name: rows for name, (_, rows) in ASKED.items()
    }
    after = DeltaTable(table)
    assert after.version() == before.version() + 1
    assert sorted(after.file_uris()) == sorted(before.file_uris())
    assert sorted(path.name for path in table.glob("*.parquet")) == files
    assert after.to_pyarrow_table().sort_by("id") == before.to_pyarrow_table().sort_by("id")
    added = [json.loads(line)["add"] for line in entry(table, after.version()) if '"add"' in line[:10]]
    assert [one["dataChange"] for one in added] == [False]
    committer = open_committer(older, "shop", "run", last=closed(Log(older, "shop").head()))
    committer.table_logs.check(committer.snapshot, TableState("shop/s", None, format="delta").change("s"))


def test_a_mend_that_dies_is_done_by_the_next(
    older: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its entry is put, the repair changed nothing; the next one does it."""

    def die(*_: Any) -> bool:
        raise KeyboardInterrupt

    table = tmp_path / "lake/shop/s"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LocalStorage, "put_if_absent", die)
        repair(older, "shop")
    assert found(table, FIELD("open") == True) == 0  # noqa: E712 - Arrow's expression
    _, report = repair(older, "shop")
    assert report.errors == 0
    assert found(table, FIELD("open") == True) == 1  # noqa: E712 - Arrow's expression


def test_compaction_keeps_what_filters_find(tmp_path: Path) -> None:
    """The joined file has statistics of its own."""
    shop = Shop(tmp_path, format="delta")
    fill_hazards(shop)
    destination = {"bucket": str(tmp_path / "lake"), "format": "delta"}
    pipeline = Pipeline.model_validate({"name": "shop", "source": {"tap": "tap"}, "destination": destination})
    compact(shop.storage, pipeline, CompactOptions())
    table = tmp_path / "lake/shop/s"
    assert len(DeltaTable(table).file_uris()) == 1
    assert {name: found(table, filter_) for name, (filter_, _) in ASKED.items()} == {
        name: rows for name, (_, rows) in ASKED.items()
    }


def test_a_wide_table_has_statistics_of_what_readers_look_at(tmp_path: Path) -> None:
    """Lists before a column do not push it out of the statistics, as they count for readers as one each."""
    shop, lists = (
        Shop(tmp_path, format="delta"),
        of("array", items=of("object", properties={"x": of("integer"), "y": of("integer")})),
    )
    properties = {f"l{n}": lists for n in range(20)} | {f"c{n}": of("integer") for n in range(20)}
    shop.load("s", properties, [{f"c{n}": n for n in range(20)}])
    table = tmp_path / "lake/shop/s"
    assert [found(table, FIELD(f"c{n}") == n) for n in range(20)] == [1] * 20


def zeros(table: Path) -> int:
    query = QueryBuilder().register("t", DeltaTable(table)).execute("select 1 from t where ratio = 0.0")
    return int(pa.table(query.read_all()).num_rows)


@pytest.mark.parametrize("ratios", [[0.0], [-0.0], [-1.5, 0.0]])
def test_zero_has_no_sign(tmp_path: Path, ratios: list[float]) -> None:
    """DataFusion takes -0.0 for less than 0.0: it is never the greatest zero, and `--repair` mends where it was."""
    shop = Shop(tmp_path, format="delta")
    shop.load("s", {"id": INTEGER, "ratio": of("number")}, [{"id": 1, "ratio": ratio} for ratio in ratios])
    table = tmp_path / "lake/shop/s"
    assert zeros(table) == 1
    first, *checkpoint = sorted((table / "_delta_log").iterdir(), key=lambda path: path.suffix != ".json")
    first.write_text(first.read_text().replace(r"\"ratio\": 0.0}}", r"\"ratio\": -0.0}}"))
    for path in checkpoint:
        path.unlink()
    assert zeros(table) == 0
    _, report = repair(shop.storage, "shop")
    assert zeros(table) == 1
    assert [one for one in report.findings if one.check == "table log"] == []


def test_a_column_with_nan_has_no_bounds(tmp_path: Path) -> None:
    """NaN is beyond each bound for DataFusion, and a footer leaves it out."""
    shop = Shop(tmp_path, format="delta")
    shop.load("s", {"ratio": of("number")}, [{"ratio": ratio} for ratio in (1.0, 3.0, NAN)])
    (added,) = [json.loads(line)["add"] for line in entry(tmp_path / "lake/shop/s", 0) if '"add"' in line[:10]]
    assert json.loads(added["stats"]) == {"numRecords": 3, "nullCount": {"ratio": 0}}


def test_characters_of_all_planes(tmp_path: Path) -> None:
    """Names and bounds beyond U+20000 are read as they are, which delta-rs gets wrong where they are escaped."""
    shop = Shop(tmp_path, format="delta")
    shop.load("s", {"𠮷": of("string")}, [{"𠮷": "\U0010fffe" * 70}, {"𠮷": "𠮷"}])
    table = tmp_path / "lake/shop/s"
    assert dataset(table).schema.names == ["𠮷"]
    assert found(table, FIELD("𠮷") == "\U0010fffe" * 70) == 1
    assert found(table, FIELD("𠮷") < "\U0010fffe") == 1


def entry(table: Path, version: int) -> list[str]:
    return (table / f"_delta_log/{version:020d}.json").read_text().splitlines()


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_a_text_column_without_a_text(tmp_path: Path, format_: str) -> None:
    """A file of thousands of rows whose text column is null in all of them is written, and its rows are found."""
    shop = Shop(tmp_path, format=format_)
    shop.load("orders", {"id": INTEGER, "note": STRING}, [{"id": number} for number in range(5_000)])
    (file,) = (tmp_path / "lake/shop/orders").rglob("part-*.parquet")
    table = pq.read_table(file)
    assert (table.num_rows, table["note"].null_count) == (5_000, 5_000)
