"""Faults of views are found by `config check` and `run --dry-run`, in the words of the run, not only by the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Typed
from tests.support.tables import Shop

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "price": {"type": "number"},
    "total": {"type": "number", "multipleOf": 0.01},
    "at": {"type": "string", "format": "date-time"},
}
CATALOG: dict[str, Any] = {
    "streams": [
        {
            "tap_stream_id": name,
            "stream": name,
            "schema": {"properties": PROPERTIES},
            "metadata": [{"breadcrumb": [], "metadata": {"selected": name == "orders"}}],
        }
        for name in ("orders", "lines")
    ]
}


@pytest.fixture(autouse=True)
def project(folder: Path) -> Path:
    """A folder with a catalog of two streams, one of which is loaded."""
    (folder / "orders.json").write_text(json.dumps(CATALOG))
    (folder / "lake").mkdir()
    return folder


def settings(
    more: str = "", catalog: str = "catalog: orders.json", tap: str = "[sh, -c, exit 0]", **views: str
) -> None:
    lines = [f"      {name}: {json.dumps(text)}" for name, text in views.items()]
    source = f"    source: {{tap: {tap}, {catalog}}}\n    destination: {{bucket: lake}}\n{more}"
    Path("bridge.yaml").write_text("\n".join([f"pipelines:\n  shop:\n{source}    views:", *lines, ""]))


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("id, sum(price) AS s", "sum of a float depends on the order of the rows view=v column=s"),
        ("id, avg(coalesce(price, 0) * 2) AS s", "avg of a float depends on the order"),
        ("price, count(*) AS n", "a float is no key view=v column=price"),
        (
            "id, sum(pric) AS s",
            "the view needs a column that the stream does not have view=v stream=orders column=pric",
        ),
        (
            "id, max(window(at, '1 hour', '5 minutes').end) AS n",
            "a window that slides puts a row into several",
        ),
        ("id, sum(DISTINCT total) AS n", "not in a view: DISTINCT stands in count(DISTINCT x) only"),
        ("session_window(at, '1 hour').start AS w, count(*) AS n", "not in a view: a session needs another key"),
        ("id, median(at) AS m", "percentile takes numbers view=v column=m"),
    ],
)
def test_a_fault_is_the_same_error_in_check_dry_run_and_run(typed: Typed, select: str, message: str) -> None:
    """With file and line, and exit code 2; a wrong type with what to write instead."""
    settings(v=f"SELECT {select} FROM orders GROUP BY 1")
    done = typed("config check --json")
    (problem,) = done.json["problems"]
    assert (done.code, message in problem["message"]) == (2, True)
    assert "bridge.yaml:6: " in problem["message"]
    assert problem["hint"]
    planned = typed("run --dry-run")
    assert (planned.code, problem["message"] in planned.err) == (2, True)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("id, sum(mean) AS s", "sum of a float depends on the order of the rows view=w column=s"),
        ("mean, count(*) AS n", "a float is no key view=w column=mean"),
        ("id, max(total) AS m", "the view needs a column that the stream does not have view=w stream=v column=total"),
    ],
)
def test_a_fault_of_a_view_of_a_view(typed: Typed, select: str, message: str) -> None:
    """By the columns that the first one has."""
    settings(v="SELECT id, avg(total) AS mean FROM orders GROUP BY id", w=f"SELECT {select} FROM v GROUP BY 1")
    (problem,) = (done := typed("config check --json")).json["problems"]
    assert (done.code, message in problem["message"], "bridge.yaml:7: " in problem["message"]) == (2, True, True)
    planned = typed("run --dry-run")
    assert (planned.code, problem["message"] in planned.err) == (2, True)


def test_a_view_of_a_view_whose_columns_only_spark_knows(typed: Typed) -> None:
    """The dry run asks for both; nobody warns of a stream that is not loaded."""
    base, local = "SELECT id, max(sqrt(total)) AS r FROM orders GROUP BY id", "    spark: {master: 'local[1]'}\n"
    settings(
        local, v=base, w="SELECT id, max(r) AS m FROM v GROUP BY id", x="SELECT m, count(*) AS n FROM w GROUP BY m"
    )
    done = typed("config check --json")
    assert (done.code, done.json["problems"], done.json["warnings"], done.json["unchecked"]) == (0, [], [], [])
    done = typed("run --dry-run --json")
    assert (done.code, "a float is no key" in done.json["refused"]["message"]) == (2, True)
    settings(local, v=base, w="SELECT id, max(r) AS m FROM v GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, done.json["refused"]) == (0, None)


def test_views_that_fit_are_no_problem(typed: Typed) -> None:
    """Neither are those of which only Spark could tell."""
    settings(
        v="SELECT id, sum(total * 2) AS s, sum(CAST(price AS DECIMAL(18, 2))) AS p, max(price) AS m "
        "FROM orders GROUP BY 1",
        w="SELECT window(at, '1 hour').start AS w, count(*) AS n FROM orders GROUP BY 1",
        x="SELECT id, sum(nobody_knows(price)) AS s FROM orders GROUP BY id",
        y="SELECT id, session_window(at, '1 hour').start AS since, count(DISTINCT price) AS n, median(price) AS m "
        "FROM orders GROUP BY 1, 2",
        z="SELECT n, max(since) AS last, sum(n) AS total, percentile(m, 0.9) AS p FROM y GROUP BY n",
    )
    done = typed("config check --json")
    assert (done.code, done.json["problems"], done.json["warnings"], done.json["unchecked"]) == (0, [], [], [])


@pytest.mark.parametrize(("stream", "guess"), [("order", '; did you mean "orders"?'), ("lines", ""), ("x", "")])
def test_a_view_of_a_stream_that_is_not_loaded_is_a_warning(typed: Typed, stream: str, guess: str) -> None:
    """One that the catalog lacks, or does not select; the same words before the run. A table that exists is enough."""
    settings(v=f"SELECT id, count(*) AS n FROM {stream} GROUP BY id")
    text = f"view v: no stream {stream} is loaded, so no run fills it{guess}"
    done = typed("config check --json")
    assert (done.code, done.json["warnings"]) == (0, [text])
    assert text in typed("run --dry-run --json").json["warnings"]


def test_what_nobody_knows_yet_is_named(typed: Typed) -> None:
    """Without a catalog, and of a stream that SQL transforms: what asks for the columns is named, with --env."""
    view = "SELECT id, sum(price) AS s FROM orders GROUP BY id"
    settings(v=view, catalog="discover: never")
    done = typed("config check --json")
    text = "view v: the columns of orders are not known yet; `singer-bridge run shop --dry-run` finds out"
    assert (done.code, done.json["unchecked"]) == (0, [text])
    assert text in typed("config check").out.replace("\n", " ")
    settings("    streams: {orders: {transform: SELECT id FROM stream}}\n", v=view)
    assert typed("config check --json").json["unchecked"] == [text]
    Path("bridge.yaml").write_text(Path("bridge.yaml").read_text() + "environments: {prod: {}}\n")
    assert "run shop --env prod --dry-run" in typed("config check --env prod").out.replace("\n", " ")


def test_check_starts_nothing() -> None:
    """It stays fast: not even pyspark is imported, and no tap runs."""
    settings(v="SELECT id, sum(total) AS s FROM orders GROUP BY id", tap="[touch, started]")
    verb = "main(['config', 'check'])"
    program = f"import sys; from bridge.cli import main\ntry: {verb}\nfinally: print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("1 pipeline" in done.stdout, done.stdout.splitlines()[-1]) == (True, "False")
    assert not Path("started").exists()


def test_the_dry_run_judges_by_the_table_that_exists(folder: Path, typed: Typed) -> None:
    """A catalog that lacks a column which the table keeps is no fault; a float of the table is one. Spark agrees."""
    shop = Shop(folder)
    shop.load("orders", PROPERTIES | {"old": {"type": "number"}}, [{"id": 1, "price": 0.5, "old": 0.5}])
    settings("    spark: {master: 'local[1]'}\n", v="SELECT id, max(old) AS o FROM orders GROUP BY id")
    assert "needs a column" in typed("config check --json").json["problems"][0]["message"]
    done = typed("run --dry-run --json")
    assert (done.code, done.json["refused"]) == (0, None)
    settings(v="SELECT id, sum(old) AS o FROM orders GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, "sum of a float" in done.json["refused"]["message"]) == (2, True)
    settings("    streams: {orders: {on_error: hold}}\n", v="SELECT id, sum(old) AS o FROM orders GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, done.json["refused"]) == (0, None)
    assert any("orders would be held back" in text and "sum of a float" in text for text in done.json["warnings"])


def test_the_dry_run_asks_spark_what_only_spark_knows(typed: Typed) -> None:
    """A function that there is not, and a float that a transform makes; with its place, as in the run."""
    local = "    spark: {master: 'local[1]'}\n"
    settings(local, v="SELECT id, sum(nobody_knows(price)) AS s FROM orders GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, "bridge.yaml:7: the view does not fit the stream" in done.json["refused"]["message"]) == (
        2,
        True,
    )
    assert "nobody_knows" in done.json["refused"]["hint"]
    transform = "    streams: {orders: {transform: 'SELECT id, sqrt(id) AS r FROM stream'}}\n"
    settings(local + transform, v="SELECT id, sum(r) AS s FROM orders GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, "sum of a float" in done.json["refused"]["message"]) == (2, True)


def test_a_view_with_the_name_of_a_table_is_found_before(folder: Path, typed: Typed) -> None:
    """As the run refuses it, with its place."""
    Shop(folder).load("totals", {"id": {"type": "integer"}}, [{"id": 1}])
    settings(totals="SELECT id, count(*) AS n FROM orders GROUP BY id")
    done = typed("run --dry-run --json")
    assert (done.code, "a stream's table has the name of this view" in done.json["refused"]["message"]) == (2, True)
