"""The views of a pipeline: what each groups, by which keys, and the commit that it is of."""

from __future__ import annotations

from typing import Any

from bridge.lake.log import Log
from bridge.read.query.snapshot import TablesAt
from bridge.settings.sql.view import read_view


def list_views(log: Log) -> list[dict[str, Any]]:
    """The facts that `views list` prints of each view of a pipeline."""
    lake = TablesAt.of(log, None).snapshot
    facts = []
    for name, table in sorted(lake.tables.items()):
        if table.view:
            view = read_view(name, table.view)
            of_view = {"pipeline": log.pipeline, "view": name, "stream": view.stream, "keys": view.keys}
            facts.append(of_view | {"groups": table.rows, "commit": lake.n, "sql": table.view})
    return facts
