"""dbt-duckdb and dbt-spark, from PyPI, build models from the sources that `dbt sources` writes."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pyarrow.compute as pc
import pytest
import yaml

import bridge
from tests.interop.orchestrators.shop import OWN, ToolProject, tap
from tests.interop.readers.venvs import venv_with
from tests.test_docs import ROOT

pytestmark = pytest.mark.timeout(900)

# dbt-core 1.12 downloads a program while it is installed
PACKAGES = ("dbt-core==1.11.16", "dbt-duckdb==1.11.1", "dbt-spark[session]==1.11.0", *OWN)
_MODEL = "{{ config(materialized='table') }} select active, count(*) as n, max(id) as top from %s group by active"
_VIEW = "{{ config(materialized='table') }} select active, orders from {{ source('shop', 'by_active') }}"
_SPARK = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
_PLUGIN = {"module": "bridge.serve.orchestrate.dbt_duckdb", "config": {"file": "bridge.yaml"}}
TARGETS = {
    "pinned": {"type": "duckdb", "path": "pinned.duckdb", "threads": 2},
    "live": {"type": "duckdb", "path": "live.duckdb", "threads": 2, "plugins": [_PLUGIN]},
    "spark": {"type": "spark", "method": "session", "schema": "main", "host": "x", "server_side_parameters": _SPARK},
}


class Dbt(ToolProject):
    """A project of bridge and dbt in one folder."""

    def load(self, orders: int) -> None:
        view = "SELECT active, count(*) AS orders FROM orders GROUP BY active"
        self.settle(shop={"source": tap(orders), "stale_after": "6h", "views": {"by_active": view}})
        self.bridge("run", "shop")

    def dbt(self, target: str, *words: str, code: int = 0) -> str:
        program = venv_with(*PACKAGES).with_name("dbt")
        environ = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_PROFILES_DIR": str(self.folder)}
        return self.type(program, "--warn-error-options", '{"error": ["Deprecations"]}', *words, "--target", target,
                         code=code, environ=environ)  # fmt: skip

    def model(self, target: str, name: str = "summary") -> list[tuple[Any, ...]]:
        """The rows of a model, as DuckDB wrote them, or Spark."""
        if target == "spark":
            code = f"import duckdb; print(duckdb.sql(\"FROM 'spark-warehouse/main.db/{name}/*.parquet'\").fetchall())"
        else:
            code = f"import duckdb; print(duckdb.connect('{target}.duckdb').sql('FROM main.{name}').fetchall())"
        rows: list[tuple[Any, ...]] = eval(self.type(venv_with(*PACKAGES), "-c", code))
        return sorted(rows, key=str)

    def orders(self, at: int | None = None) -> list[tuple[Any, ...]]:
        """What the model should have, by pyarrow."""
        groups = bridge.Lake(self.lake, at=at).table("shop", "orders").to_table().group_by("active")
        rows = groups.aggregate([("id", "count"), ("id", "max")]).to_pylist()
        return sorted(((row["active"], row["id_count"], row["id_max"]) for row in rows), key=str)

    def freshness(self) -> dict[str, dict[str, Any]]:
        """What `dbt source freshness` wrote, by stream."""
        results = json.loads((self.folder / "target/sources.json").read_text())["results"]
        return {result["unique_id"].rpartition(".")[2]: result for result in results}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Dbt:
    """Two streams and a view, loaded by one run."""
    shop = Dbt(tmp_path_factory.mktemp("dbt"))
    shop.load(100)
    (shop.folder / "models").mkdir()
    (shop.folder / "models/summary.sql").write_text(_MODEL % "{{ source('shop', 'orders') }}")
    (shop.folder / "models/seen.sql").write_text(_VIEW)
    project = {"name": "demo", "version": "1.0", "profile": "demo", "model-paths": ["models"]}
    (shop.folder / "dbt_project.yml").write_text(yaml.safe_dump(project))
    profile = {"demo": {"target": "pinned", "outputs": TARGETS}}
    (shop.folder / "profiles.yml").write_text(yaml.safe_dump(profile))
    return shop


def view_of(lake: Dbt) -> list[tuple[Any, ...]]:
    rows = bridge.Lake(lake.lake).table("shop", "by_active").to_table().to_pylist()
    return sorted(((row["active"], row["orders"]) for row in rows), key=str)


def test_pinned(lake: Dbt) -> None:
    """External locations list one commit: models have its rows after a later one, too, until they are written anew.

    A table whose files a later commit moved away, as of a view, is an error, and never a part of it.
    """
    lake.bridge("dbt", "sources", "-o", "models/sources.yml")
    before, first = lake.orders(), bridge.Lake(lake.lake).commit("shop")
    lake.load(150)
    orders = lake.lake / "shop/orders"
    stray = orders / "stray.parquet"
    stray.write_bytes(next(orders.glob("part-*.parquet")).read_bytes())
    lake.dbt("pinned", "run", "--select", "summary")
    assert "No files found that match" in lake.dbt("pinned", "run", "--select", "seen", code=1)
    assert lake.model("pinned") == before == lake.orders(at=first)
    lake.bridge("dbt", "sources", "-o", "models/sources.yml")
    lake.dbt("pinned", "run")
    assert lake.model("pinned") == lake.orders() != before
    assert sum(row[1] for row in lake.model("pinned")) == 150
    assert lake.model("pinned", "seen") == view_of(lake)
    stray.unlink()  # it would refuse the next run


def test_live(lake: Dbt) -> None:
    """By the plugin the same file has each model read the last commit."""
    lake.bridge("dbt", "sources", "--live", "-o", "models/sources.yml")
    for orders in (160, 170):
        lake.load(orders)
        lake.dbt("live", "run")
        assert lake.model("live") == lake.orders()
        assert sum(row[1] for row in lake.model("live")) == orders
    assert lake.model("live", "seen") == view_of(lake)


def test_a_lake_that_is_not_there(lake: Dbt) -> None:
    """Where the plugin cannot read, dbt ends with our message."""
    lake.bridge("dbt", "sources", "--live", "-o", "models/sources.yml")
    settings = (lake.folder / "bridge.yaml").read_text()
    (lake.folder / "bridge.yaml").write_text(settings.replace("bucket:", "bukket:"))
    try:
        assert 'did you mean "bucket"?' in lake.dbt("live", "run", code=2)
    finally:
        (lake.folder / "bridge.yaml").write_text(settings)


@pytest.mark.parametrize("flags", [[], ["--live"]], ids=["pinned", "live"])
def test_freshness(flags: list[str], lake: Dbt) -> None:
    """The time is that of the last success; of a column, where one is named, and old rows are a warning then."""
    target = "live" if flags else "pinned"
    lake.bridge("dbt", "sources", *flags, "-o", "models/sources.yml")
    lake.dbt(target, "source", "freshness")
    found = lake.freshness()
    assert {name: result["status"] for name, result in found.items()} == dict.fromkeys(
        ["by_active", "orders", "users"], "pass"
    )
    run = next(bridge.Lake(lake.lake).runs("shop"))
    assert run.ended and found["orders"]["max_loaded_at"][:19] == run.ended[:19]
    lake.bridge("dbt", "sources", *flags, "--loaded-at", "at", "-o", "models/sources.yml")
    lake.dbt(target, "source", "freshness")
    found = lake.freshness()
    newest = pc.max(bridge.Lake(lake.lake).table("shop", "orders").to_table()["at"]).as_py()
    assert datetime.fromisoformat(found["orders"]["max_loaded_at"].replace("Z", "+00:00")) == newest
    assert (found["orders"]["status"], found["by_active"]["status"]) == ("warn", "pass")


def test_spark(lake: Dbt) -> None:
    """dbt-spark makes the tables by the documented macro, and has the rows of the lake."""
    page = (ROOT / "docs/orchestrators.md").read_text()
    (macro,) = re.findall(r"```sql\n(\{% macro singer_bridge_tables.*?)```", page, re.DOTALL)
    (hook,) = re.findall(r"```yml\n# dbt_project.yml\n(.*?)```", page, re.DOTALL)
    (lake.folder / "macros").mkdir()
    (lake.folder / "macros/singer_bridge.sql").write_text(macro)
    project = lake.folder / "dbt_project.yml"
    text = project.read_text()
    project.write_text(text + hook)
    lake.bridge("dbt", "sources", "--adapter", "spark", "-o", "models/sources.yml")
    try:
        lake.dbt("spark", "run")
        assert lake.model("spark") == lake.orders()
        lake.dbt("spark", "source", "freshness")
        run = next(bridge.Lake(lake.lake).runs("shop"))
        assert run.ended and lake.freshness()["orders"]["max_loaded_at"][:19] == run.ended[:19]
    finally:
        project.write_text(text)
