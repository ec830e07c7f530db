"""`Lake.view`: the row of a key and its commit, whatever is committed meanwhile."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge import Lake
from bridge.errors import LakeError, SettingsError
from bridge.lake.commit.open import open_committer
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import open_storage
from bridge.read.query.follow import LatestCommit
from bridge.read.query.view import View
from tests.support.lake import DEAD, Faulty, fail
from tests.support.lake import Lake as Bucket
from tests.support.s3server import S3Server
from tests.support.tables import INTEGER, Shop
from tests.support.view_formats import check_own_logs, note_catalog
from tests.support.view_tables import Views, counts

ROOT = Path(__file__).parents[4]
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def opened(views: Views, name: str = "counts") -> View:
    return Lake(views.storage.uri).view("shop", name)


def number(view: View, key: str, at: int | None = None) -> Any:
    """The count of a key of `counts`, None without one."""
    answer = view.get(id=key, at=at)
    return answer and answer.row["n"]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read, each once a look-up."""
    groups: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def read(file: pq.ParquetFile, group: int, *args: Any, **how: Any) -> pa.Table:
        groups.append(group)
        return whole(file, group, *args, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)
    return groups


def test_a_row_and_its_commit(tmp_path: Path) -> None:
    """Each answer says its commit; without the key it is None; the view's own columns stay hidden."""
    views = Views(tmp_path)
    views.put(counts(a=1, b=2))
    view = opened(views)
    answer = view.get(id="a")
    assert answer is not None
    assert (answer.row, answer.commit) == ({"id": "a", "n": 1}, 1)
    assert view.get(id="c") is None
    assert [field.name for field in view.key_columns] == ["id"]


def test_a_commit_is_seen_at_once(tmp_path: Path) -> None:
    """The handle follows: a get after a commit has that commit, and an older one is read by its number."""
    views = Views(tmp_path)
    views.put(counts(a=1, b=2))
    view = opened(views)
    views.put(counts(a=5, c=1))
    assert (number(view, "a"), number(view, "b"), number(view, "c"), view.commit) == (5, None, 1, 2)
    assert (number(view, "a", at=1), number(view, "b", at=1), number(view, "c", at=1)) == (1, 2, None)
    assert number(Lake(views.root, at=1).view("shop", "counts"), "a") == 1
    assert number(view, "a", at=2) == 5


def test_only_files_that_a_commit_changed_are_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The footers of the others are known already."""
    views = Views(tmp_path)
    record = views.put(counts(a=1, b=2, c=3, d=4), files=2)
    view = opened(views)
    footers: list[int] = []
    metadata = pq.ParquetFile.metadata.fget
    monkeypatch.setattr(pq.ParquetFile, "metadata", property(lambda file: footers.append(1) or metadata(file)))
    views.put(counts(c=7, d=4), replaces=[record.tables[0].adds[1].name])
    footers.clear()
    assert (number(view, "a"), number(view, "c")) == (1, 7)
    once = len(footers)
    assert (number(view, "d"), number(view, "b")) == (4, 2)
    assert len(footers) - once < once


def test_never_half_of_a_commit(tmp_path: Path) -> None:
    """A run that dies between record and publication: the answer is of the commit before until it is repaired."""
    views = Views(tmp_path)
    views.put(counts(a=1))
    view = opened(views)
    faulty = Faulty(Bucket(views.root), publish=fail)
    faulty.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        views.put(counts(a=2), storage=faulty)
    assert (number(view, "a"), view.commit) == (1, 1)
    assert number(opened(views), "a") == 1
    open_committer(views.storage, "shop", "next", last=DEAD)
    assert number(view, "a") == 2


def test_beside_a_writer(tmp_path: Path) -> None:
    """Another process commits on and on: each answer is the row of the commit that it names, and none goes back."""
    views = Views(tmp_path)
    views.put(counts(a=1, b=1))
    view = opened(views)
    code = (
        "import pathlib; from tests.support.view_tables import Views, counts; "
        f"views = Views(pathlib.Path({str(tmp_path)!r})); views.n = 1\n"
        "for n in range(2, 22): views.put(counts(a=n, b=n), files=2)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    seen = [1]
    while seen[-1] < 21:
        answer = view.get(id="ab"[len(seen) % 2])
        assert answer is not None
        assert answer.row["n"] == answer.commit >= seen[-1]
        seen.append(answer.commit)
        assert writer.poll() in (None, 0)
    assert writer.wait(60) == 0
    assert len(set(seen)) > 3


def test_threads_share_a_handle(tmp_path: Path) -> None:
    """Each gets its own answer, while commits come."""
    views = Views(tmp_path)
    ids = {f"{n:03}": n for n in range(200)}
    views.put(counts(**ids), files=3, group=16)
    view = opened(views)

    def ask(key: str) -> bool:
        answer = view.get(id=key)
        return answer is not None and answer.row == {"id": key, "n": ids[key] * answer.commit}

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, key) for key in list(ids) * 5]
        for times in (2, 3):
            views.put(counts(**{key: n * times for key, n in ids.items()}), files=2, group=16)
        assert all(answer.result() for answer in answers)
    assert view.commit == 3


class Stale(LatestCommit):
    """A reader that is slow: right after its first look the lake moves on."""

    def __init__(self, views: Views) -> None:
        super().__init__(Log(views.storage, "shop"))
        self.moves: list[Any] = []

    def now(self) -> Snapshot:
        snapshot = super().now()
        if self.moves:
            self.moves.pop()()
        return snapshot


def test_files_that_vanish_under_a_reader(tmp_path: Path) -> None:
    """Its commit's files are removed, and deleted for good, between two of its steps: it reads the next commit."""
    views = Views(tmp_path)
    views.put(counts(a=1))
    latest = Stale(views)
    view = View(latest, "counts")

    def replace_and_empty_the_trash() -> None:
        views.put(counts(a=2))
        shutil.rmtree(views.root / pipeline_key("shop", "trash"))

    latest.moves.append(replace_and_empty_the_trash)
    answer = view.get(id="a")
    assert answer is not None
    assert (answer.row["n"], answer.commit) == (2, 2)
    latest.moves.append(lambda: views.put(counts(a=3)))
    answer = view.get(id="a")
    assert answer is not None
    assert (answer.row["n"], answer.commit) == (2, 2)  # from the trash


def test_a_commit_whose_files_are_no_longer_kept(tmp_path: Path) -> None:
    """It is an error, never a wrong answer; the handle stays usable."""
    views = Views(tmp_path)
    views.put(counts(a=1))
    views.put(counts(a=2))
    view = opened(views)
    assert number(view, "a", at=1) == 1
    shutil.rmtree(views.root / pipeline_key("shop", "trash"))
    with pytest.raises(LakeError, match="a file of this commit is gone"):
        view.get(id="a", at=1)
    assert number(view, "a") == 2


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    views = Views(tmp_path)
    views.put(counts(a=1))
    (file,) = views.root.glob("shop/counts/*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(LakeError, match="a file cannot be read"):
        opened(views)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_table_formats(table_format: str, tmp_path: Path) -> None:
    """A view in a table with a log of its own, at each commit."""
    views = Views(tmp_path, table_format=table_format)
    views.put(counts(a=1, b=2))
    views.put(counts(a=3))
    view = opened(views)
    assert (number(view, "a"), number(view, "b")) == (3, None)
    assert (number(view, "a", at=1), number(view, "b", at=1)) == (1, 2)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_table_formats_in_a_bucket(table_format: str, s3: S3Server, tmp_path: Path) -> None:
    """Over S3 the same; the libraries of the formats have the rows of each commit, too."""
    storage = open_storage(f"s3://{s3.bucket(f'views-of-{table_format}')}/lake")
    if table_format == "iceberg":
        note_catalog(storage, "shop", tmp_path)
    views = Views(tmp_path, storage, table_format)
    views.put(counts(a=1, b=2), files=2)
    views.put(counts(a=3))
    view = opened(views)
    assert (number(view, "a"), number(view, "b"), number(view, "b", at=1)) == (3, None, 2)
    for commit in (1, 2):
        check_own_logs(Log(storage, "shop"), commit)


def test_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Over S3 the same, and files that were removed while the handle was open."""
    s3.bucket("views")
    views = Views(tmp_path, open_storage("s3://views/lake"))
    views.put(counts(a=1, b=2), files=2)
    view = opened(views)
    assert (number(view, "a"), number(view, "b")) == (1, 2)
    latest = Stale(views)
    slow = View(latest, "counts")
    latest.moves.append(lambda: views.put(counts(a=5, c=9), files=2))
    assert number(slow, "a") == 1
    assert (number(view, "a"), number(view, "b"), number(view, "c")) == (5, None, 9)
    assert (number(view, "a", at=1), number(view, "c", at=1)) == (1, None)


def test_views_of_a_lake(tmp_path: Path) -> None:
    """A view is a table, too: without its hidden columns, for SQL as for Arrow."""
    views, shop = Views(tmp_path), Shop(tmp_path)
    shop.load("s", {"id": INTEGER}, [{"id": 1}])
    views.n = shop._head
    views.put(counts(a=1, b=2))
    lake = Lake(views.root)
    assert (lake.views("shop"), lake.tables("shop")) == (["counts"], ["counts", "s"])
    assert lake.table("shop", "counts").to_table().sort_by("id").to_pylist() == [
        {"id": "a", "n": 1},
        {"id": "b", "n": 2},
    ]
    assert lake.sql("FROM counts ORDER BY id DESC LIMIT 1").to_pylist() == [{"id": "b", "n": 2}]
    kinds = lake.sql("SELECT stream, view IS NOT NULL AS view, columns FROM bridge.streams ORDER BY 1").to_pylist()
    assert [tuple(row.values()) for row in kinds] == [("counts", True, 2), ("s", False, 1)]


def test_wrong_names(tmp_path: Path) -> None:
    """A view that is none, or was none at a commit: the error says what there is."""
    shop = Shop(tmp_path)
    shop.load("s", {"id": INTEGER}, [{"id": 1}])
    views = Views(tmp_path)
    views.n = 1
    views.put(counts(a=1))
    lake = Lake(views.root)
    for name, hint in (("count", 'did you mean "counts"'), ("s", "it is a table"), ("zzzzz", "there are: counts")):
        with pytest.raises(SettingsError, match="no such view") as raised:
            lake.view("shop", name)
        assert hint in raised.value.hint
    view = lake.view("shop", "counts")
    with pytest.raises(SettingsError, match="no such view"):
        view.get(id="a", at=1)
    with pytest.raises(SettingsError, match="there is no such commit"):
        view.get(id="a", at=3)
    assert number(view, "a") == 1


def test_an_empty_view(tmp_path: Path) -> None:
    """It has keys, and no row for any."""
    views = Views(tmp_path)
    views.put(counts(a=1))
    views.put(counts(a=1).slice(1))
    view = opened(views)
    assert number(view, "a") is None
    with pytest.raises(SettingsError, match="not a key column"):
        view.get(nope=1)


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1]),
    "text": (pa.string(), ["", "A", "a", "a" * 70, "a" * 70 + "b", "x" * 5000, "x" * 5000 + "y", "é", "日本", "𝄞"]),
    "decimal": (pa.decimal128(38, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("1.10"), Decimal("9" * 36 + ".99")]),
    "wide": (pa.decimal128(38, 0), [Decimal(-(10**30)), Decimal(3), Decimal(10**30)]),
    "instant": (pa.timestamp("us", "UTC"), [NOON - timedelta(days=40_000), NOON, NOON + timedelta(microseconds=1)]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 31), date(9999, 12, 31)]),
    "bool": (pa.bool_(), [False, True]),
    "float": (pa.float64(), [float("-inf"), -1.5, 0.0, 0.1, 1e300, float("inf"), float("nan")]),
}


def of_type(views: Views, type_: pa.DataType, values: list[Any], *, nulls_first: bool) -> View:
    """A view whose keys are these values and NULL, a row group for every two."""
    ordered = [None, *values] if nulls_first else [*values, None]
    rows = pa.table({"k": pa.array(ordered, type_), "n": range(len(ordered)), "_view_rows": range(len(ordered))})
    views.put(rows, "v", "SELECT k, count(*) AS n FROM s GROUP BY k", group=2)
    return opened(views, "v")


@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_keys_of_every_type(name: str, nulls_first: bool, tmp_path: Path) -> None:
    """Each value is its own key, and NULL is one."""
    type_, values = TYPES[name]
    view = of_type(Views(tmp_path), type_, values, nulls_first=nulls_first)
    for place, value in enumerate([None, *values] if nulls_first else [*values, None]):
        answer = view.get(k=value)
        assert answer is not None, value
        assert answer.row["n"] == place, value
        assert answer.row["k"] == value or value != value  # NaN


def test_values_that_mean_the_same(tmp_path: Path) -> None:
    """-0.0 is 0.0, 1 is 1.0, a time is the same in every zone; what a type cannot hold is in no row."""
    view = of_type(Views(tmp_path / "f"), *TYPES["float"], nulls_first=True)
    assert [view.get(k=value) is not None for value in (-0.0, 0, float("-nan"), 2)] == [True, True, True, False]
    view = of_type(Views(tmp_path / "t"), *TYPES["instant"], nulls_first=True)
    assert view.get(k=NOON.astimezone(timezone(timedelta(hours=5)))) is not None
    view = of_type(Views(tmp_path / "d"), *TYPES["decimal"], nulls_first=True)
    assert [view.get(k=value) is not None for value in (0, Decimal("1.1"), Decimal("1.111"), Decimal(10**37))] == [
        True,
        True,
        False,
        False,
    ]
    view = of_type(Views(tmp_path / "i"), *TYPES["int"], nulls_first=True)
    assert [view.get(k=value) is not None for value in (7, 2**63, 2**200)] == [True, False, False]
    view = of_type(Views(tmp_path / "s"), *TYPES["text"], nulls_first=True)
    assert view.get(k="\ud800") is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("int", "7", "it takes an int; the key of v is: k (int64)"),
        ("int", True, "it takes an int"),
        ("int", 7.0, "it takes an int"),
        ("text", 7, "it takes a str"),
        ("text", b"a", "it takes a str"),
        ("decimal", 1.5, 'such as Decimal("1.25"), or an int; the key of v is: k (decimal128(38, 2))'),
        ("decimal", Decimal("nan"), "it takes a decimal.Decimal"),
        ("instant", datetime(2026, 1, 1), "with its time zone"),
        ("instant", date(2026, 1, 1), "with its time zone"),
        ("instant", datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))), "years 1 to 9999"),
        ("date", NOON, "it takes a datetime.date"),
        ("bool", 1, "it takes True or False"),
        ("float", "1.5", "it takes a float"),
    ],
)
def test_a_value_of_another_type(name: str, value: Any, words: str, tmp_path: Path) -> None:
    """The error names the keys and their types."""
    view = of_type(Views(tmp_path), *TYPES[name], nulls_first=True)
    with pytest.raises(SettingsError, match="a value does not fit its key column") as raised:
        view.get(k=value)
    assert words in raised.value.hint


def test_names_of_keys(tmp_path: Path) -> None:
    """All of them, and no others; a name that is no word of Python goes into a mapping."""
    views = Views(tmp_path)
    sql = "SELECT a AS at, b AS `the b`, count(*) AS n FROM s GROUP BY a, b"
    views.put(pa.table({"at": [1, 1], "the b": ["x", "y"], "n": [3, 4], "_view_rows": [3, 4]}), "pairs", sql)
    view = opened(views, "pairs")
    answer = view.get({"at": 1, "the b": "y"}, at=1)
    assert answer is not None
    assert answer.row == {"at": 1, "the b": "y", "n": 4}
    for key, words in (({"at": 1}, "a key column has no value"), ({"at": 1, "the b": "y", "n": 4}, "not a key column")):
        with pytest.raises(SettingsError, match=words) as raised:
            view.get(key)
        assert "the key of pairs is: at (int64), the b (string)" in raised.value.hint


@pytest.mark.parametrize("distinct", [1, 3, 40])
@pytest.mark.parametrize("group", [2, 5, 16])
@pytest.mark.parametrize("files", [1, 3])
def test_at_most_two_row_groups(files: int, group: int, distinct: int, tmp_path: Path, reads: list[int]) -> None:
    """Keys of three columns, the first constant over many groups: each is found, and none that is not there."""
    chance = random.Random(f"{files} {group} {distinct}")
    keys = sorted({(chance.randrange(distinct), chance.randrange(6), f"{chance.randrange(12):02}") for _ in range(150)})
    rows = pa.table({name: [key[at] for key in keys] for at, name in enumerate("abc")} | {"n": range(len(keys))})
    views = Views(tmp_path)
    views.put(rows, "v", "SELECT a, b, c, count(*) AS n FROM s GROUP BY a, b, c", files=files, group=group)
    view = opened(views, "v")
    numbers = {key: n for n, key in enumerate(keys)}
    some = {(chance.randrange(-1, distinct + 1), chance.randrange(-1, 7), f"{chance.randrange(13):02}") for _ in keys}
    for key in {*keys, *some}:
        reads.clear()
        answer = view.get(dict(zip("abc", key, strict=True)))
        assert (answer and answer.row["n"]) == numbers.get(key), key
        assert len(reads) <= 2, key


@pytest.mark.parametrize("nulls_first", [True, False])
def test_nulls_among_several_columns(nulls_first: bool, tmp_path: Path) -> None:
    """NULL in any column, or in all, wherever the writer puts it."""

    def order(key: tuple[Any, ...]) -> list[Any]:
        return [((one is not None) == nulls_first, one or 0) for one in key]

    keys = sorted(product([None, 1, 2, 3], repeat=3), key=order)
    rows = pa.table({name: [key[at] for key in keys] for at, name in enumerate("abc")} | {"n": range(len(keys))})
    views = Views(tmp_path)
    views.put(rows, "v", "SELECT a, b, c, count(*) AS n FROM s GROUP BY a, b, c", files=2, group=3)
    view = opened(views, "v")
    for n, key in enumerate(keys):
        answer = view.get(dict(zip("abc", key, strict=True)))
        assert (answer and answer.row["n"]) == n, key
    assert view.get(a=None, b=None, c=9) is None


def test_rows_that_are_not_sorted(tmp_path: Path) -> None:
    """A file whose footer claims no order is read by bounds alone: slower, and right."""
    views = Views(tmp_path)
    keys = [(a, b) for a in range(5) for b in range(20)]
    random.Random(1).shuffle(keys)
    rows = pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys], "n": range(len(keys))})
    views.put(rows, "v", "SELECT a, b, count(*) AS n FROM s GROUP BY a, b", group=7, is_sorted=False)
    view = opened(views, "v")
    for n, (a, b) in enumerate(keys):
        answer = view.get(a=a, b=b)
        assert (answer and answer.row["n"]) == n
