"""`views`: what one types, what is printed, and how a key that is in no row ends."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.shell import Typed
from tests.support.tables import INTEGER, Shop, typing
from tests.support.view_tables import Views, counts

PAIRS = "SELECT day, kind, open, count(*) AS n, sum(price) AS total FROM sales GROUP BY day, kind, open"


@pytest.fixture
def views(tmp_path: Path) -> Views:
    """A lake with two views, one of them at two commits."""
    views = Views(tmp_path)
    views.put(counts(a=1, b=2))
    views.put(counts(a=5))
    rows = {
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 2)], pa.date32()),
        "kind": pa.array(["x", "k=v", None]),
        "open": [True, False, False],
        "n": [1, 2, 3],
        "total": pa.array([Decimal("1.10"), Decimal("2.20"), None], pa.decimal128(38, 2)),
        "_view_count_total": [1, 2, 0],
        "_view_rows": [1, 2, 3],
    }
    views.put(pa.table(rows), "pairs", PAIRS)
    return views


def test_views_are_listed(views: Views, typed: Typed) -> None:
    """Name, stream, keys, groups and commit; `views` alone lists, too."""
    done = typed(f"views list --to {views.root}")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["view", "stream", "keys", "groups", "commit"],
        ["counts", "s", "id", "1", "3"],
        ["pairs", "sales", "day,", "kind,", "open", "3", "3"],
    ]
    assert typed(f"views --to {views.root} --json").json[1] == {
        "pipeline": "shop",
        "view": "pairs",
        "stream": "sales",
        "keys": ["day", "kind", "open"],
        "groups": 3,
        "commit": 3,
        "sql": PAIRS,
    }


def test_a_lake_without_views(tmp_path: Path, typed: Typed) -> None:
    shop = Shop(tmp_path)
    shop.load("s", {"id": INTEGER}, [{"id": 1}])
    done = typed(f"views list --to {shop.root}")
    assert (done.code, "there are no views" in done.out) == (0, True)
    assert typed(f"views list --to {shop.root} --json").json == []
    done = typed(f"views get s --to {shop.root} --key 1")
    assert (done.code, "it is a table" in done.err) == (2, True)


def test_a_row_by_its_key(views: Views, typed: Typed) -> None:
    """Its columns and its commit; an older one with --at."""
    done = typed(f"views get counts --to {views.root} --key a")
    assert (done.code, done.out.split()) == (0, ["column", "value", "id", "a", "n", "5", "commit", "3"])
    done = typed(f"views get counts --to {views.root} --key a --at 1 --json")
    assert done.json == {"pipeline": "shop", "view": "counts", "commit": 1, "row": {"id": "a", "n": 1}}


def test_a_key_that_no_row_has(views: Views, typed: Typed) -> None:
    """Exit 1, with the commit that does not have it; programs get a null."""
    done = typed(f"views get counts --to {views.root} -k b")
    assert (done.code, done.out) == (1, "")
    assert "no row of counts has this key at commit 3" in done.err
    done = typed(f"views get counts --to {views.root} -k b --json")
    assert (done.code, done.json["row"], done.json["commit"]) == (1, None, 3)


@pytest.mark.parametrize(
    ("words", "n"),
    [
        ("-k 2026-01-01 -k x -k true", 1),
        ("-k kind=x -k 2026-01-01 -k open=TRUE", 1),
        ("-k 2026-01-02 -k kind=k=v -k false", 2),
        ("-k 2026-01-02 --null kind -k false", 3),
        ("-k 2026-01-02 -k x -k false", None),
    ],
)
def test_keys_of_several_columns(words: str, n: int | None, views: Views, typed: Typed) -> None:
    """Values by their order or by name, as the columns' types read them; NULL is said by --null."""
    done = typed(f"views get pairs --to {views.root} {words} --json")
    assert done.code == (n is None)
    assert (done.json["row"] and done.json["row"]["n"]) == n


def test_values_are_written_exactly(views: Views, typed: Typed) -> None:
    """Decimals keep their digits; NULL is null, and `NULL` for people."""
    row = f"views get pairs --to {views.root} -k 2026-01-01 -k x -k true"
    assert '"total": 1.10' in typed(f"{row} --json").out
    lines = [line.split() for line in typed(row).out.splitlines()]
    assert (["day", "2026-01-01"] in lines, ["total", "1.10"] in lines, ["open", "true"] in lines) == (True, True, True)
    done = typed(f"views get pairs --to {views.root} -k 2026-01-02 --null kind -k false")
    assert "NULL" in done.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("get pairs -k x", "a key column has no value"),
        ("get pairs -k 1 -k 2 -k 3 -k 4", "more values than the key has columns"),
        ("get pairs -k kind=x -k kind=y -k 2026-01-01 -k true", "more values than the key has columns"),
        ("get pairs -k x -k x -k true", "it takes a date, such as 2026-01-31"),
        ("get pairs -k 2026-01-01 -k x -k yes", "it takes true or false"),
        ("get counts --null nope", "not a key column of the view"),
        ("get counts", "a key column has no value"),
        ("get count -k a", 'did you mean "counts"'),
        ("get counts -k a --at 9", "there is no such commit"),
        ("get pairs -k 2026-01-01 -k x -k true --at 1", "no such view"),
    ],
)
def test_a_wrong_key(words: str, error: str, views: Views, typed: Typed) -> None:
    """Exit 2, with what the key is."""
    done = typed(f"views {words} --to {views.root}")
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert error != "a key column has no value" or "the key of " in done.err


@pytest.fixture
def file(tmp_path: Path, views: Views) -> str:
    """The flag that names a bridge.yaml of two pipelines over that lake."""
    pipelines = (
        f"{name}: {{source: {{tap: tap-x}}, destination: {{bucket: {views.root}}}}}" for name in ("shop", "other")
    )
    (tmp_path / "bridge.yaml").write_text(f"pipelines: {{{', '.join(pipelines)}}}\n")
    return f"-f {tmp_path / 'bridge.yaml'}"


def test_a_view_of_several_pipelines(tmp_path: Path, file: str, typed: Typed) -> None:
    """Where one of the pipelines has the view, no name is needed; where several have, they are named."""
    assert typed(f"views get counts -k a {file} --json").json["pipeline"] == "shop"
    done = typed(f"views get nope -k a {file}")
    assert (done.code, "there are: counts, pairs" in done.err) == (2, True)
    Views(tmp_path, pipeline="other").put(counts(a=7))
    done = typed(f"views get counts -k a {file}")
    assert (done.code, "give the pipeline's NAME before it, one of: shop, other" in done.err) == (2, True)
    for words in ("counts -k a --name other", "other counts -k a"):
        assert typed(f"views get {words} {file} --json").json["row"] == {"id": "a", "n": 7}
    done = typed(f"views get {file}")
    assert (done.code, "which view?" in done.err) == (2, True)


def test_tables_mark_views(views: Views, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tables list` says which are views; their hidden columns are not shown."""
    tables = typing(tmp_path, capsys)
    listed = json.loads(tables("list", "--json"))
    assert [(fact["stream"], fact["kind"]) for fact in listed] == [("counts", "view"), ("pairs", "view")]
    assert "view" in tables("list").split()
    for words in (["show"], ["head"], ["history", "--diff"], ["ddl", "--dialect", "athena"]):
        assert "_view_" not in tables(*words, "-s", "pairs"), words
    shop = Shop(tmp_path / "plain")
    shop.load("s", {"id": INTEGER}, [{"id": 1}])
    assert "kind" not in typing(tmp_path / "plain", capsys)("list")


def test_there_is_nothing_to_verify(tmp_path: Path, typed: Typed) -> None:
    """Without views `views verify` says so; a name of none is an error. Neither starts Spark."""
    shop = Shop(tmp_path)
    shop.load("s", {"id": INTEGER}, [{"id": 1}])
    done = typed(f"views verify --to {shop.root}")
    assert (done.code, "there are no views" in done.out) == (0, True)
    assert typed(f"views verify --to {shop.root} --repair --json").json == []
    done = typed(f"views verify s --to {shop.root}")
    assert (done.code, "no such view" in done.err) == (2, True)


def test_a_pipeline_is_verified_as_other_verbs_name_it(file: str, views: Views, typed: Typed) -> None:
    """One word is a pipeline if there is one of that name, else a view; two are a pipeline and its view."""
    assert typed(f"views verify other {file} --json").json == []
    for words, hint in (
        ("nope", "there are: counts, pairs"),
        ("shop nope", "there are: counts, pairs"),
        ("shop count", 'did you mean "counts"?'),
        ("other counts", "there are: none"),
    ):
        done = typed(f"views verify {words} {file}")
        assert (done.code, "no such view" in done.err, hint in done.err) == (2, True, True), words
    done = typed(f"views verify nope counts {file}")
    assert (done.code, "unknown pipeline" in done.err) == (2, True)
    done = typed(f"views verify shop --to {views.root} --name other")
    assert (done.code, "no such view" in done.err) == (2, True)
