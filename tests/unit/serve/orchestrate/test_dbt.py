"""`dbt sources`: DuckDB reads exactly the committed files, dbt reads each text as it is meant, and no file is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import jinja2
import pyarrow as pa
import pytest
import yaml

import bridge
from bridge.lake.commit.rollback import roll_back
from bridge.lake.run_status import fresh_since
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.orchestrate.dbt import HEADER
from tests.golden.make import unpack_to
from tests.support.shell import Typed
from tests.support.tables import INTEGER, ODD, STRING, Shop, filled
from tests.support.view_tables import Views


def rendered(value: Any) -> Any:
    """What dbt makes of the file: each text is a template."""
    if isinstance(value, str):
        return jinja2.Template(value, keep_trailing_newline=True).render()
    if isinstance(value, dict):
        return {key: rendered(each) for key, each in value.items()}
    return [rendered(each) for each in value] if isinstance(value, list) else value


def tables_of(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The tables of a file by source and name, as dbt understands them."""
    assert text.startswith(HEADER)
    sources = rendered(yaml.safe_load(text))["sources"]
    return {(source["name"], table["name"]): table for source in sources for table in source["tables"]}


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """What DuckDB selects from the source, as dbt-duckdb puts it into a statement."""
    meta = table["config"]["meta"]
    assert meta["formatter"] == "oldstyle"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        answer: pa.Table = connection.sql(f"SELECT * FROM {meta['external_location'] % {}}").to_arrow_table()
    return list(answer.to_pylist())


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    def texts(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)

    return texts(left) == texts(right)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_duckdb_reads_each_table_as_the_log_says(kind: str, tmp_path: Path, typed: Typed) -> None:
    """Each table and view of all pipelines of a bucket, in every format, whatever else is in its folder."""
    root = unpack_to(kind, tmp_path)
    found = tables_of(typed(f"dbt sources --to {root}").out)
    lake = bridge.Lake(root)
    expected = {(name, table): lake.table(name, table) for name in lake.pipelines for table in lake.tables(name)}
    assert found.keys() == expected.keys()
    for key, table in found.items():
        assert same(rows_of(table), expected[key].to_table().to_pylist()), key
        assert [column["name"] for column in table["columns"]] == expected[key].schema.names, key


def test_names_types_and_stray_files(tmp_path: Path, typed: Typed) -> None:
    """Newer columns are null in older files; odd names of tables and columns stay; a stray file is not read."""
    _, rows = filled(tmp_path / "{{ x }} 100% [a]*'")
    (lake,) = tmp_path.glob("*/lake")
    orders = lake / "shop/orders"
    (orders / "stray.parquet").write_bytes(next(orders.glob("*.parquet")).read_bytes())
    found = tables_of(typed(f'dbt sources --to "{lake}"').out)
    names = {name for _, name in found}
    assert names == {*rows}
    for name, expected in rows.items():
        assert same(rows_of(found["shop", name]), expected), name
    identifiers = [table["identifier"] for table in found.values()]
    assert len({each.casefold() for each in identifiers}) == len(identifiers)
    assert all(each.isascii() and each.isidentifier() for each in identifiers)
    wide = {column["name"]: column["data_type"] for column in found["shop", "wide"]["columns"]}
    assert (wide["n"], wide["at"], wide["day"]) == ("decimal(38, 0)", "TIMESTAMP WITH TIME ZONE", "DATE")
    assert wide["grid"] == "BIGINT[][]" and wide["place"].startswith('STRUCT("x" BIGINT, "y z" VARCHAR')
    odd = {column["name"]: column.get("quote", False) for column in found["shop", ODD]["columns"]}
    assert odd["été"] and not odd["id_2"]


def test_overwritten_and_taken_back(tmp_path: Path, typed: Typed) -> None:
    """An overwrite leaves the new files only; a table that a rollback took back is no source any more."""
    shop = Shop(tmp_path)
    shop.load("full", {"id": INTEGER}, [{"id": 1}])
    shop.load("full", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    shop.load("late", {"id": INTEGER}, [{"id": 3}])
    to = f"dbt sources --to {shop.root}"
    assert {name: rows_of(table) for (_, name), table in tables_of(typed(to).out).items()} == {
        "full": [{"id": 2}],
        "late": [{"id": 3}],
    }
    roll_back(shop.storage, "shop", 2)
    assert [name for _, name in tables_of(typed(to).out)] == ["full"]


def test_a_view_shows_its_columns(tmp_path: Path, typed: Typed) -> None:
    """A view is a source, too: its SELECT is its description, and its hidden columns stay hidden."""
    views = Views(tmp_path)
    views.put(pa.table({"id": ["a"], "n": [2], "_view_rows": [2]}))
    ((_, table),) = tables_of(typed(f"dbt sources --to {views.root}").out).items()
    assert table["description"] == "SELECT id, count(*) AS n FROM s GROUP BY id"
    assert rows_of(table) == [{"id": "a", "n": 2}]


def test_freshness(tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stale_after` is when dbt warns, and the time is that of the last success; or of a column, where it has times."""
    monkeypatch.chdir(tmp_path)
    unpack_to("parquet", tmp_path)
    settings = "{source: {tap: tap-x}, stale_after: 90m, destination: {bucket: lake}}"
    Path("bridge.yaml").write_text(f"pipelines:\n  p: {settings}\n")
    text = typed("dbt sources").out
    (source,) = yaml.safe_load(text)["sources"]
    assert source["config"]["freshness"] == {"warn_after": {"count": 90, "period": "minute"}, "error_after": None}
    since = fresh_since(LocalStorage(tmp_path / "lake"), "p")
    assert since and since.is_success
    for table in tables_of(text).values():
        ((at,),) = duckdb.sql(table["config"]["loaded_at_query"]).fetchall()
        assert at.replace(tzinfo=timezone.utc) == datetime.fromisoformat(since.at).replace(microsecond=0)


def test_freshness_by_a_column(tmp_path: Path, typed: Typed) -> None:
    """--loaded-at counts in tables where that column has times; if there is none, the user is told."""
    shop = Shop(tmp_path)
    at = {"type": "string", "format": "date-time"}
    shop.load("orders", {"id": INTEGER, "at": at}, [{"id": 1, "at": "2025-01-01T00:00:00Z"}])
    shop.load("users", {"id": INTEGER, "at": STRING}, [{"id": 1, "at": "x"}])
    to = f"dbt sources --to {shop.root}"
    found = tables_of(typed(f"{to} --loaded-at at --adapter spark").out)
    fields = {name: table["config"].get("loaded_at_field") for (_, name), table in found.items()}
    assert fields == {"orders": "`at`", "users": None}
    done = typed(f"{to} --loaded-at id")
    assert done.code == 2 and "no table has this column of times" in done.err and "_sdc_batched_at" in done.err


def test_descriptions_of_the_catalog(tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tap says of streams and columns is in the file; a template in it is only a text."""
    monkeypatch.chdir(tmp_path)
    Shop(tmp_path).load("orders", {"id": INTEGER, "when": STRING}, [{"id": 1}])
    text = "{{ env_var('HOME') }} {% raw %} 100%"
    schema = {"description": text, "properties": {"id": {"description": "the {# key"}, "when": {}}}
    Path("c.json").write_text(json.dumps({"streams": [{"tap_stream_id": "orders", "schema": schema}]}))
    settings = "{source: {tap: tap-x, catalog: c.json}, destination: {bucket: lake}}"
    Path("bridge.yaml").write_text(f"pipelines:\n  shop: {settings}\n")
    table = tables_of(typed("dbt sources").out)["shop", "orders"]
    assert table["description"] == text
    assert [column.get("description") for column in table["columns"]] == ["the {# key", None]


def test_spark_has_the_statements(tmp_path: Path, typed: Typed) -> None:
    """A Parquet table is made anew over its folder; of a Delta table there is a view, which reads Delta's log."""
    shop = Shop(tmp_path)
    shop.load("my-orders", {"id": INTEGER}, [{"id": 1}])
    ((_, table),) = tables_of(typed(f"dbt sources --to {shop.root} --adapter spark").out).items()
    drop, create = table["config"]["meta"]["create"]
    assert drop == "DROP TABLE IF EXISTS `shop`.`my_orders`"
    assert create.startswith("CREATE TABLE `shop`.`my_orders` (\n  `id` bigint\n)\nUSING parquet\nLOCATION '")
    assert table["identifier"] == "my_orders" and table["columns"] == [{"name": "id", "data_type": "bigint"}]
    delta = tables_of(typed(f"dbt sources --to {unpack_to('delta', tmp_path / 'd')} --name p --adapter spark").out)
    (view,) = delta["p", "orders"]["config"]["meta"]["create"]
    assert view.startswith("CREATE OR REPLACE VIEW `p`.`orders` AS\nSELECT * FROM delta.`")


def test_live_sources_name_no_file(tmp_path: Path, typed: Typed) -> None:
    """With --live there is no list of files, so the file stays right after later commits."""
    shop = Shop(tmp_path)
    shop.load("orders", {"id": INTEGER}, [{"id": 1}])
    first = typed(f"dbt sources --to {shop.root} --live").out
    shop.load("orders", {"id": INTEGER}, [{"id": 2}])
    assert typed(f"dbt sources --to {shop.root} --live").out == first
    table = tables_of(first)["shop", "orders"]
    assert table["identifier"] == "orders"
    assert table["config"] == {"loaded_at_query": "SELECT singer_bridge_loaded_at('shop')"}
    done = typed(f"dbt sources --to {shop.root} --live --adapter spark")
    assert done.code == 2 and "--live is a plugin of dbt-duckdb" in done.err


def test_the_file(tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier file of this verb is replaced; one that somebody else wrote, and a folder without it, stay."""
    monkeypatch.chdir(tmp_path)
    Shop(tmp_path).load("orders", {"id": INTEGER}, [{"id": 1}])
    Path("models").mkdir()
    for _ in range(2):
        done = typed("dbt sources --to lake -o models/sources.yml")
        assert (done.code, done.out) == (0, "") and "1 table of 1 pipeline written to models/sources.yml" in done.err
    assert Path("models/sources.yml").read_text() == typed("dbt sources --to lake").out
    Path("models/mine.yml").write_text("version: 2\n")
    done = typed("dbt sources --to lake -o models/mine.yml")
    assert done.code == 2 and "was not written by `dbt sources`, so it stays" in done.err
    assert Path("models/mine.yml").read_text() == "version: 2\n"
    done = typed("dbt sources --to lake -o absent/sources.yml")
    assert done.code == 2 and "cannot write the sources: No such file or directory" in done.err
    assert sorted(path.name for path in Path("models").iterdir()) == ["mine.yml", "sources.yml"]


def test_nothing_to_write(tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a project, a pipeline or a table the user is told what to do, and no file comes to be."""
    monkeypatch.chdir(tmp_path)
    done = typed("dbt sources -o sources.yml")
    assert done.code == 2 and "no bridge.yaml here or above" in done.err
    Path("bridge.yaml").write_text("pipelines:\n  a: {source: {tap: tap-x}, destination: {bucket: lake}}\n")
    done = typed("dbt sources -o sources.yml")
    assert done.code == 2 and "there is no table yet" in done.err and "singer-bridge run" in done.err
    Path("empty").mkdir()
    done = typed("dbt sources --to empty -o sources.yml")
    assert done.code == 2 and "nothing was loaded there yet" in done.err
    assert not Path("sources.yml").exists()


def test_the_library_loads_none_of_these_tools() -> None:
    """`import bridge`, and each verb's module, import neither Dagster, Airflow nor dbt."""
    code = "import sys, bridge, bridge.cli.look.dbt, bridge.serve.orchestrate.dbt; bridge.Project; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "bridge.serve.orchestrate.dbt" in printed
    assert not {"dagster", "airflow", "dbt"} & set(printed)
