"""A stream that has tables under both of its names: a view is of the one that its SELECT writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bridge import Lake
from bridge.lake.commit.open import open_committer
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables
from bridge.load.write.context import WriteContext
from bridge.settings.options import Pipeline
from tests.support.tables import INTEGER, Shop

NAMES = ("public-orders", "orders")
VIEWS = {
    "by_id": "SELECT id, count(*) AS n FROM `public-orders` GROUP BY id",
    "by_name": "SELECT id, count(*) AS n FROM orders GROUP BY id",
}


def test_a_change_goes_to_the_view_of_its_table(tmp_path: Path, spark: SparkSession) -> None:
    """The other view stays as it is."""
    shop = Shop(tmp_path)
    shop.load("public-orders", {"id": INTEGER}, [{"id": 1}])
    shop.load("orders", {"id": INTEGER}, [{"id": 2}])
    destination = {"bucket": str(shop.root)}
    settings: dict[str, Any] = {"name": "shop", "source": {"tap": "tap"}, "destination": destination, "views": VIEWS}
    pipeline = Pipeline.model_validate(settings | {"names": dict.fromkeys(NAMES, NAMES)})
    committer = open_committer(shop.storage, "shop", "run", last={"closed": Lake(shop.root).commit("shop")})
    tables = TablePlanner(shop.storage, pipeline, committer.snapshot, None, full=False, append=False)
    context = WriteContext.of(pipeline, shop.storage.uri, "run", committer.generation, tables.layouts)
    views = ViewTables(pipeline, committer, context, tables, lambda work: work(spark, context, None))
    changes = [change for view in views.views for change in views.build(view, None, 1)]
    committer.commit(committer.snapshot.pipeline_state, changes)
    rows = {
        change.stream: pq.read_table(shop.root / change.folder / change.adds[0].name)["id"].to_pylist()
        for change in changes
    }
    assert rows == {"by_id": [1], "by_name": [2]}
    change = committer.snapshot.tables["orders"].change("orders", [], [])
    feeds = {view.name: views.feeds(view, {"orders": change}) for view in views.views}
    assert feeds == {"by_id": None, "by_name": change}
