"""`run --dry-run`: what a run would do, and why. Reads; writes nothing but the discovered catalog."""

from __future__ import annotations

from typing import Any

from bridge.catalog import selected_streams
from bridge.cli.choose import Chosen
from bridge.cli.show import as_json, console, count, table
from bridge.log import Log
from bridge.pipeline import Request
from bridge.placement import Placement
from bridge.source import Source
from bridge.state import bookmark
from bridge.storage import open_storage

__all__ = ["plan"]


def plan(chosen: Chosen, request: Request, *, json_output: bool) -> int:
    """Print the plan of a run and return 0."""
    pipeline = chosen.pipeline
    storage = open_storage(pipeline.destination.bucket)
    log = Log(storage, pipeline.name)
    view = log.view(log.head())
    source = Source(pipeline, chosen.home)
    catalog, _ = source.catalog(request.streams, refresh=request.refresh_catalog)
    full = request.full or not pipeline.incremental.enabled
    placement = Placement(storage, pipeline, view, catalog, full=full, append=request.append)
    names = sorted(selected_streams(catalog)) if catalog else sorted(view.tables)
    streams = [_stream(placement, view, name) for name in names]
    facts = {
        "pipeline": pipeline.name,
        "tap": source.argv[0],
        "bucket": pipeline.destination.bucket,
        "state": None if full and not request.streams else request.state or view.state,
        "streams": streams,
    }
    if json_output:
        as_json({"format": 1, **facts})
    else:
        _print(facts, catalog is not None)
    return 0


def _stream(placement: Placement, view: Any, name: str) -> dict[str, Any]:
    mode, reason = placement.method(name, None)
    live = view.tables.get(name)
    return {
        "stream": name,
        "load_method": "overwrite" if mode == "replace" else "append-only",
        "reason": reason,
        "rows_now": live.rows if live else 0,
        "bookmark": bookmark(view.state, name),
    }


def _print(facts: dict[str, Any], has_catalog: bool) -> None:
    out = console()
    out.print(f"[bold]{facts['pipeline']}[/]  {facts['tap']} -> {facts['bucket']}", soft_wrap=True)
    out.print(f"state: {facts['state']}" if facts["state"] else "state: none, the tap starts from the beginning")
    rows = [
        [s["stream"], f"{s['load_method']} ({s['reason']})", count(s["rows_now"]), str(s["bookmark"] or "")]
        for s in facts["streams"]
    ]
    if rows:
        out.print(table(["stream", "load method", "rows now", "bookmark"], rows, right=["rows now"]))
    if not has_catalog:
        out.print("no catalog: the tap itself decides on the streams, and each SCHEMA on its load method")
    out.print("[dim]dry run: nothing was started, nothing was written[/]")
