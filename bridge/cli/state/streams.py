"""Checks before bookmarks are changed: does the stream exist, and which rows would be loaded twice?"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from bridge.cli.selection import ChosenPipeline, environment
from bridge.cli.show import count
from bridge.errors import SettingsError, did_you_mean
from bridge.exact_json import dumps
from bridge.lake.log import Log
from bridge.lake.runs import read_opened
from bridge.settings.options import Pipeline
from bridge.singer.catalog import stream_ids
from bridge.singer.state import is_flat
from bridge.singer.state_edits import contexts_of, parsed, partition_of, streams_of
from bridge.tap.catalog_store import CatalogStore

_LISTED = 5
"""Contexts that a hint names."""
_RUNS = 20
"""How many of the latest runs are searched for a stream's load method."""


def expect_existing(chosen: ChosenPipeline, state: Any, stream: str) -> None:
    """Raise `SettingsError` for a stream that is in neither catalog, tables nor STATE, unless these are all empty."""
    log = chosen.log
    existing = {*streams_of(state), *log.view(log.latest()).stream_tables}
    with suppress(SettingsError):  # the next run will report an unreadable catalog
        catalog = CatalogStore(chosen.home, chosen.pipeline).read() or {"streams": []}
        existing |= {*stream_ids(catalog), *(str(each["stream"]) for each in catalog["streams"] if "stream" in each)}
    if existing and stream not in existing:
        names = did_you_mean(stream, existing) or f"there are: {', '.join(sorted(existing))}"
        raise SettingsError("no such stream", hint=f"{names}; --force sets it all the same", stream=stream)


def context_of(stream: str | None, partition: str) -> dict[str, Any]:
    """The context that `--partition` names. Raises `SettingsError` if it is none, or of no stream."""
    if stream is None:
        raise SettingsError("--partition is of one stream", hint="name it: -s STREAM")
    context = parsed(partition, "--partition")
    if not isinstance(context, dict) or not context:
        hint = """as the bookmark's `context` says it: --partition '{"region": "a"}'"""
        raise SettingsError("--partition is a JSON object", hint=hint)
    return context


def expect_partition(value: Any, context: dict[str, Any], stream: str) -> None:
    """Raise `SettingsError` for a context that the stream's bookmark does not have."""
    if partition_of(value, context) is None:
        listed = ", ".join(dumps(each).decode().strip() for each in contexts_of(value)[:_LISTED])
        hint = f"there are: {listed or 'none'}; state set --force sets it all the same"
        raise SettingsError("the bookmark has no such partition", hint=hint, stream=stream)


def would_double(chosen: ChosenPipeline, state: Any, streams: Collection[str]) -> str:
    """Say which tables would have each row twice after the next run if these bookmarks, or all, were cleared."""
    pipeline, log = chosen.with_names, chosen.log
    tables = log.view(log.latest()).stream_tables
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
    """Each stream's load method: from the settings, else from the latest run with that stream."""
    methods: dict[str, str] = {}
    for run in read_opened(log.storage, log.pipeline, _RUNS):
        for stream, result in run.streams.items():
            methods.setdefault(stream, (result.load_method or "append-only").split()[0])
    declared = {stream: pipeline.load_method(stream) for stream in log.view(log.latest()).stream_tables}
    return methods | {stream: method for stream, method in declared.items() if method != "auto"}
