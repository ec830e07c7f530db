"""`views verify`, typed: what it says of a view that somebody has changed, and its repair."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridge
from tests.e2e.conftest import Project
from tests.e2e.test_views import BY_DAY, FORMATS, Shop, order, state
from tests.support.view_oracle import check_commits

pytestmark = pytest.mark.usefixtures("in_process")

SALES = "SELECT region, count(*) AS n, sum(amount) AS total, max(seen_at) AS latest FROM orders GROUP BY region"


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_view_is_checked_and_filled_again(project: Project, table_format: str) -> None:
    """Exit code 3 and the key with both rows; after the repair, 0, and the view is its SELECT again."""
    shop = Shop(project, {"by_region": SALES, "by_day": BY_DAY}, {"load_method": "append-only", "format": table_format})
    shop.play(*(order(n, n) for n in range(40)), state(1))
    files = (project.lake / "shop" / "by_region").rglob("*.parquet")
    (file,) = (file for file in files if file.parent.name != "_delta_log")
    table = pq.read_table(file)
    rows = [row | {"total": row["total"] + (row["region"] == "south")} for row in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)

    wrong = shop.command("views", "verify")
    assert wrong.code == 3, wrong.err
    assert "✓ by_day" in wrong.out
    assert "✗ by_region: is not what its SELECT gives, 1 key differs; 4 groups, commit 1" in wrong.out
    assert "region=south: only the view has n=10, total=201, latest=2025-01-27T" in wrong.out
    assert "; only its SELECT gives n=10, total=200, latest=2025-01-27T" in wrong.out
    assert "--repair" in wrong.out

    where = ["--to", "lake", "--name", "shop"] if table_format == FORMATS[0] else []
    repaired = shop.command("views", "verify", "by_region", "--repair", "--json", *where)
    assert repaired.code == 0, repaired.err
    (facts,) = repaired.json
    assert (facts["view"], facts["status"], facts["commit"], facts["repaired"]) == ("by_region", "ok", 2, 2)
    assert bridge.Lake(shop.uri).commit("shop") == 2
    assert check_commits(shop.uri, "shop", 2) == {"by_region": 1, "by_day": 1}
    assert not shop.command("verify", "shop").code
