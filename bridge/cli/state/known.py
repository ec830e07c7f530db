"""What is known of a pipeline's streams before their bookmarks are changed: their names, and what would double."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from bridge.cli.selection import Chosen, environment
from bridge.cli.show import count
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Log
from bridge.lake.runs import read_runs
from bridge.settings.options import Pipeline
from bridge.singer.catalog import stream_ids
from bridge.singer.state import is_flat
from bridge.singer.state_edits import streams_of
from bridge.storage import lake_of
from bridge.tap.catalog_store import Kept

_RUNS = 20
"""So many of the latest runs are asked how a stream was loaded."""


def expect_known(chosen: Chosen, state: Any, stream: str) -> None:
    """Raise `SettingsError` for a stream of which neither catalog, tables nor STATE know, if they know any."""
    log = Log(lake_of(chosen.pipeline.destination), chosen.pipeline.name)
    known = {*streams_of(state), *log.view(log.latest()).tables}
    with suppress(SettingsError):  # an unreadable catalog is the run's matter
        catalog = Kept(chosen.home, chosen.pipeline).read() or {"streams": []}
        known |= {*stream_ids(catalog), *(str(each["stream"]) for each in catalog["streams"] if "stream" in each)}
    if known and stream not in known:
        names = did_you_mean(stream, known) or f"there are: {', '.join(sorted(known))}"
        raise SettingsError("no such stream", hint=f"{names}; --force sets it all the same", stream=stream)


def would_double(chosen: Chosen, state: Any, streams: Collection[str]) -> str:
    """Say which tables have each row twice after the next run, if these bookmarks, or all, are cleared."""
    pipeline = chosen.named
    log = Log(lake_of(pipeline.destination), pipeline.name)
    tables = log.view(log.latest()).tables
    cleared = pipeline.all_names(streams or (tables if is_flat(state) else streams_of(state)))
    rows = {stream: tables[stream].rows for stream in sorted(cleared) if stream in tables}
    methods = _load_methods(pipeline, log)
    doubled = [s for s, number in rows.items() if number and methods.get(s, "append-only") == "append-only"]
    if not doubled or not pipeline.incremental.enabled:
        return ""
    first = [f"{stream} ({count(rows[stream])}{' rows' if not place else ''})" for place, stream in enumerate(doubled)]
    names = " and ".join(filter(None, (", ".join(first[:-1]), first[-1])))
    are, their, again = ("are", "their", "them") if len(doubled) > 1 else ("is", "its", "it")
    only = "".join(f" -s {stream}" for stream in streams)
    env = environment()
    name = f"{pipeline.name.removeprefix(f'{env}.')} --env {env}" if env else pipeline.name
    again += ", with load_method auto" if pipeline.appends_only(doubled) else ""
    return (
        f"{names} {are} append-only: the next run adds all {their} rows again; "
        f"to load {again} anew without doubles: singer-bridge run {name} --full{only}"
    )


def _load_methods(pipeline: Pipeline, log: Log) -> dict[str, str]:
    """Return how each stream is loaded: as the settings say, else as the latest run did that had it."""
    found: dict[str, str] = {}
    for run in read_runs(log.storage, log.pipeline, _RUNS):
        for stream, facts in run.get("streams", {}).items():
            found.setdefault(stream, str(facts.get("load_method", "append-only")).split()[0])
    said = {stream: pipeline.load_method(stream) for stream in log.view(log.latest()).tables}
    return found | {stream: method for stream, method in said.items() if method != "auto"}
