"""A `transform` that looks rows up in other tables of the bucket: by the real command; DuckDB is the oracle."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import bridge
from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from tests.crash.orchestrator import Strike
from tests.e2e.conftest import Project
from tests.support.s3server import S3Server
from tests.support.shell import Done

TEXT, INTEGER = {"type": ["null", "string"]}, {"type": ["null", "integer"]}
STREAMS: dict[str, Any] = {
    "orders": {"id": INTEGER, "customer": INTEGER, "country": TEXT, "amount": INTEGER},
    "customers": {"id": INTEGER, "name": TEXT, "country": TEXT, "score": {"type": ["null", "number"]}, "info": {}},
    "rates": {"country": TEXT, "day": {"type": "string", "format": "date"}, "rate": INTEGER},
}
CUSTOMERS = [
    {"id": 1, "name": "Ann", "country": "de", "score": 1.5, "info": {"a": 1}},
    {"id": 2, "name": None, "country": "fr", "score": None},
    {"id": 3, "name": "Cem", "country": None, "score": -0.0},
]
ORDERS = [
    {"id": number, "customer": number % 5 or None, "country": [None, "de", "fr", "xx"][number % 4], "amount": number}
    for number in range(1, 41)
]
JOINED = "SELECT s.*, c.name, c.country AS home FROM stream s LEFT JOIN crm.customers c ON c.id = s.customer"


class Shop:
    """The pipelines `crm`, with customers, a view of them and rates, and `shop`, whose orders look rows up in them."""

    def __init__(self, project: Project, transform: str, bucket: str = "lake") -> None:
        self.project, self.transform, self.uri = project, transform, bucket
        (project.folder / "tap.py").write_text("import sys\nprint(open(sys.argv[1]).read(), end='')\n")
        if bucket == "lake":
            self.uri = str(project.lake)
        self.bucket, self.more = bucket, dict[str, Any]()
        self.crm(CUSTOMERS)

    def say(self, pipeline: str, **streams: list[dict[str, Any]]) -> None:
        lines: list[dict[str, Any]] = []
        for name, rows in streams.items():
            keys = ["id"] if "id" in STREAMS[name] else []
            schema = {"type": "object", "properties": STREAMS[name]}
            lines.append({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": keys})
            lines += [{"type": "RECORD", "stream": name, "record": row} for row in rows]
        lines.append(
            {"type": "STATE", "value": {"bookmarks": {name: {"n": len(rows)} for name, rows in streams.items()}}}
        )
        (self.project.folder / f"{pipeline}.singer").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def write(self) -> None:
        def source(name: str) -> dict[str, Any]:
            return {"tap": [sys.executable, "tap.py", f"{name}.singer"], "discover": "never"}

        by_country = "SELECT country, count(*) AS n, max(id) AS latest FROM customers GROUP BY country"
        crm: dict[str, Any] = {
            "source": source("crm"),
            "destination": {"bucket": self.bucket, "load_method": "overwrite"},
        }
        shop: dict[str, Any] = {"source": source("shop"), "destination": {"bucket": self.bucket, **self.more}}
        shop |= {"streams": {"orders": {"transform": self.transform}}}
        pipelines = {"crm": crm | {"views": {"by_country": by_country}}, "shop": shop}
        (self.project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))

    def crm(self, customers: list[dict[str, Any]], rates: list[dict[str, Any]] | None = None) -> None:
        self.say("crm", customers=customers, **({"rates": rates} if rates is not None else {}))
        self.write()
        done = self.project.command("run", "crm", "--json", "--no-guard", timeout=300)
        assert done.code == 0, done.err

    def run(self, orders: list[dict[str, Any]], *flags: str) -> Done:
        self.say("shop", orders=orders)
        self.write()
        return self.project.command("run", "shop", "--json", *flags, timeout=300)

    def rows(self, query: str, **tables: Any) -> list[tuple[Any, ...]]:
        lake = bridge.Lake(self.uri)
        with duckdb.connect() as connection:
            for name in lake.tables("shop"):
                connection.register(name, lake.table("shop", name).to_table())
            for name, table in tables.items():
                connection.register(name, table)
            return connection.execute(query).fetchall()

    @property
    def looked_up(self) -> list[dict[str, int]]:
        log = Log(open_storage(self.uri), "shop")
        return [record.looked_up for record in reversed([*log.history(log.head())]) if record.kind == "data"]


def customers_at(shop: Shop, commit: int) -> Any:
    return bridge.Lake(shop.uri, at={"crm": commit}).table("crm", "customers").to_table()


@pytest.fixture
def shop(project: Project, in_process: None) -> Shop:
    return Shop(project, JOINED)


def done_well(done: Done) -> Done:
    assert done.code == 0, done.err + done.out
    return done


ORACLE = (
    "SELECT s.id, c.name, c.country FROM (SELECT * FROM orders WHERE id BETWEEN {} AND {}) s "
    "LEFT JOIN customers c ON c.id = s.customer ORDER BY s.id"
)


def test_each_row_has_what_the_other_table_had_then(shop: Shop) -> None:
    """At the commit that its own commit names; rows that are there already stay as they are."""
    done_well(shop.run(ORDERS[:20]))
    first = bridge.Lake(shop.uri).commit("crm")
    shop.crm([{"id": 1, "name": "Anna", "country": "at"}, {"id": 4, "name": "Dora"}])
    second = bridge.Lake(shop.uri).commit("crm")
    done_well(shop.run(ORDERS[20:]))
    assert shop.looked_up == [{"crm": first}, {"crm": second}]
    for commit, low, high in ((first, 1, 20), (second, 21, 40)):
        mine = shop.rows(f"SELECT id, name, home FROM orders WHERE id BETWEEN {low} AND {high} ORDER BY id")
        assert mine == shop.rows(ORACLE.format(low, high), customers=customers_at(shop, commit))
    names = {row[0] for row in shop.rows("SELECT DISTINCT name FROM orders")}
    assert names == {"Ann", "Anna", "Cem", "Dora", None}


def test_an_inner_join_leaves_rows_out_and_counts_them(shop: Shop) -> None:
    """As `filtered`; also by a view, by two columns, by an expression, and with all of the other table's columns."""
    rates = [{"country": country, "day": "2025-01-01", "rate": rate} for country, rate in (("de", 2), ("fr", 3))]
    shop.crm(CUSTOMERS, rates)
    shop.transform = (
        "SELECT s.id, s.amount * r.rate AS total, v.n, v.latest, c.* EXCEPT (id, country) FROM stream AS s "
        "JOIN crm.rates r ON s.country = r.country AND r.day = date(concat('2025-01-0', CAST(s.id > 0 AS INT))) "
        "LEFT JOIN crm.by_country v USING (country) LEFT OUTER JOIN crm.customers c ON v.latest = c.id WHERE s.id > 1"
    )
    done = shop.run(ORDERS)
    assert done.code == 0, done.err
    matching = [order for order in ORDERS if order["country"] in ("de", "fr") and order["id"] > 1]
    counts = done.json["streams"]["orders"]
    assert (counts["records"], counts["filtered"]) == (len(matching), len(ORDERS) - len(matching))
    rows = shop.rows("SELECT id, total, n, latest, name, score FROM orders ORDER BY id")
    rate, latest = {"de": 2, "fr": 3}, {"de": 1, "fr": 2}
    by_id = {customer["id"]: customer for customer in CUSTOMERS}
    expected = [
        (
            one["id"],
            one["amount"] * rate[one["country"]],
            1,
            latest[one["country"]],
            *map(by_id[latest[one["country"]]].get, ("name", "score")),
        )
        for one in matching
    ]
    assert rows == expected


@pytest.mark.parametrize("customers", [[], [{"id": None, "name": "nobody"}]])
def test_a_table_without_rows(shop: Shop, customers: list[dict[str, Any]]) -> None:
    """Or none with a key: LEFT JOIN finds nothing; JOIN leaves all rows out, and each is counted."""
    shop.crm(customers)
    done_well(shop.run(ORDERS))
    assert shop.rows("SELECT count(*), count(name) FROM orders") == [(40, 0)]
    shop.transform = JOINED.replace("LEFT ", "")
    done = done_well(shop.run(ORDERS))
    assert done.json["streams"]["orders"]["filtered"] == 40
    assert shop.rows("SELECT count(*) FROM orders") == [(40,)]


@pytest.mark.parametrize(
    "where",
    ["c.name = 'nobody'", "s.customer = 77", "c.country = 'zz' OR c.name = 'nobody'", "c.name IS NULL AND c.id > 5"],
)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_condition_that_no_row_of_the_table_passes(shop: Shop, where: str, join: str) -> None:
    """All rows are read all the same, and counted as filtered."""
    shop.transform = JOINED.replace("LEFT JOIN", join).replace("= s.customer", f"= (s.customer) WHERE {where}")
    done = done_well(shop.run(ORDERS))
    assert (done.json["streams"]["orders"]["filtered"], shop.rows("SELECT count(*) FROM orders")) == (40, [(0,)])


def test_a_run_looks_rows_up_in_one_commit(shop: Shop) -> None:
    """Whatever becomes of the other table while it goes on: here its tap runs the other pipeline."""
    program = (
        "import pathlib, subprocess, sys, time\n"
        "lines = open('shop.singer').read().splitlines()\n"
        "print(*lines[:11], sep='\\n', flush=True)\n"
        "time.sleep(1.5)\n"
        "print(lines[-1].replace('40', '10'), flush=True)\n"
        "while not pathlib.Path('lake/.bridge/shop/state.json').exists(): time.sleep(0.05)\n"
        "argv = [sys.executable, '-m', 'bridge', 'run', 'crm', '--json']\n"
        "subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)\n"
        "print(*lines[11:], sep='\\n', flush=True)\n"
    )
    first = bridge.Lake(shop.uri).commit("crm")
    shop.say("crm", customers=[{"id": 1, "name": "Other"}])
    shop.say("shop", orders=ORDERS)
    shop.write()
    (shop.project.folder / "paced.py").write_text(program)
    settings = (shop.project.folder / "bridge.yaml").read_text().replace('"tap.py", "shop.singer"', '"paced.py"')
    settings = settings.replace('"shop": {', '"shop": {"commit": {"every": "1s"}, ')
    (shop.project.folder / "bridge.yaml").write_text(settings)
    done = shop.project.command("run", "shop", "--json", timeout=300)
    assert done.code == 0, done.err
    assert bridge.Lake(shop.uri).commit("crm") > first
    assert {str(one) for one in shop.looked_up} == {str({"crm": first})}
    assert shop.rows("SELECT DISTINCT name FROM orders WHERE customer = 1") == [("Ann",)]


def test_a_worker_that_dies(project: Project) -> None:
    """What Spark does again looks up the same rows, and counts once."""
    shop = Shop(project, JOINED)
    struck = shop.project.folder / "struck"
    shop.project.environ |= Strike(r"os.scandir .*/singer-bridge-\d+", 1, None, "pyspark.worker").environment(struck)
    shop.say("shop", orders=ORDERS)
    shop.write()
    done = shop.project.command("run", "shop", "--json", timeout=300)
    assert (done.code, struck.exists()) == (0, True), done.err
    mine = shop.rows("SELECT id, name, home FROM orders ORDER BY id")
    assert mine == shop.rows(ORACLE.format(1, 40), customers=customers_at(shop, bridge.Lake(shop.uri).commit("crm")))


@pytest.mark.parametrize(
    ("transform", "message", "hint"),
    [
        (JOINED.replace("crm.", "crn."), "looks rows up in a table that there is not pipeline=crn", "run crn"),
        (JOINED.replace("customers", "custommers"), "in a table that there is not", 'did you mean "customers"?'),
        (JOINED.replace("crm.", ""), "in a table that there is not pipeline=shop", "singer-bridge run shop"),
        (JOINED.replace("c.id", "c.idd"), "needs a column that the table does not have column=idd", 'mean "id"'),
        (JOINED.replace("c.id = s", "c.score = s"), "a double is no key of a look-up", "integers"),
        (JOINED.replace("c.id = s.customer", "c.info = s.country"), "", ""),
        (
            JOINED.replace("c.id = s.customer", "c.name = s.customer"),
            "another type than the row",
            "CAST(... AS STRING)",
        ),
        (
            JOINED.replace("c.id", "c.twice"),
            "a look-up finds several rows",
            "1 keys have several rows, such as twice=7",
        ),
        (
            JOINED.replace("c.id = s.customer", "c.id = s.customer + score"),
            "compares keys of the table with the row",
            "",
        ),
        (JOINED.replace("c.id = s.customer", "c.id = twice"), "compares keys of the table with the row", "none of its"),
        (JOINED.replace("customers c", "customers c(name, id)"), "bridge.yaml", "such as"),
        (JOINED.replace("LEFT JOIN", "|> LEFT JOIN"), "bridge.yaml", ""),
        (JOINED.replace("c.name", "c.nope"), "the transform does not fit the stream", "nope"),
        (JOINED.replace("c.name", "country"), "the transform does not fit the stream", "AMBIGUOUS"),
    ],
)
def test_what_is_wrong_is_told_before_a_row_is_stored(shop: Shop, transform: str, message: str, hint: str) -> None:
    """With what to do; nothing is committed."""
    STREAMS["customers"]["twice"] = INTEGER
    try:
        shop.crm([customer | {"twice": 7 if customer["id"] > 1 else None} for customer in CUSTOMERS])
    finally:
        del STREAMS["customers"]["twice"]
    shop.transform = transform
    done = shop.run(ORDERS)
    if not message:
        assert done.code == 0, done.err
        return
    assert done.code == 2, done.err
    error = done.json["error"]
    assert message in error["message"]
    assert hint in error["hint"]
    assert not (Path(shop.uri) / "shop/orders").exists()


def test_the_dry_run_finds_a_table_that_there_is_not(shop: Shop) -> None:
    """By the bucket, without Spark and without a row."""
    catalog = {
        "streams": [{"tap_stream_id": "orders", "stream": "orders", "schema": {"properties": STREAMS["orders"]}}]
    }
    catalog["streams"][0]["metadata"] = [{"breadcrumb": [], "metadata": {"selected": True}}]
    (shop.project.folder / "catalog.json").write_text(json.dumps(catalog))
    shop.transform = JOINED.replace("crm.customers", "crm.clients")
    shop.say("shop", orders=ORDERS)
    shop.write()
    settings = (shop.project.folder / "bridge.yaml").read_text()
    head, _, tail = settings.rpartition('"discover": "never"')
    (shop.project.folder / "bridge.yaml").write_text(f'{head}"catalog": "catalog.json"{tail}')
    for flags in (("--dry-run",), ()):
        done = shop.project.command("run", "shop", "--json", *flags, timeout=300)
        assert done.code == 2
        assert "there is not" in done.out + done.err


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
@pytest.mark.usefixtures("in_process")
def test_in_a_bucket_and_merged_by_key(s3: S3Server, project: Project, table_format: str) -> None:
    """An upsert keeps what its rows looked up; tables of a format with a log are read as well."""
    project.environ |= s3.environ
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environ.items():
            patch.setenv(name, value)
        shop = Shop(project, JOINED, f"s3://{s3.bucket(f'lookup-{table_format}')}/team")
        shop.more = {"load_method": "upsert", "format": table_format}
        done_well(shop.run(ORDERS))
        shop.crm([{"id": 1, "name": "Anna", "country": "at"}])
        done = shop.run([ORDERS[0] | {"amount": 99}])
        assert done.code == 0, done.err
        names = shop.rows("SELECT id, name, amount FROM orders WHERE customer = 1 ORDER BY id")
        assert names[:2] == [(1, "Anna", 99), (6, "Ann", 6)]


@pytest.mark.timeout(400)
def test_the_source_is_asked_again(shop: Shop) -> None:
    """`reconcile` looks rows up as the tables are now, in the real bucket; and so does the trial of `smoke`."""
    assert shop.run(ORDERS).code == 0
    asked = ("reconcile", "shop", "--json", "--rows")
    same = shop.project.command(*asked, timeout=300)
    assert same.code == 0, same.err
    assert same.json["streams"]["orders"]["compared"] == "rows"
    shop.crm([*CUSTOMERS[1:], CUSTOMERS[0] | {"name": "Anne"}])
    other = shop.project.command(*asked, timeout=300)
    assert other.code == 1
    assert other.json["streams"]["orders"]["stale"] == sum(order["customer"] == 1 for order in ORDERS)
    trial = shop.project.command("smoke", "shop", "--load", "--json", timeout=300)
    loaded = [each for each in trial.json["checks"] if each["check"] == "load"]
    assert loaded and all(each["status"] == "passed" for each in loaded), loaded
