"""Resets of streams: which rows the next run would load twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.log import Log
from bridge.lake.runs import read_opened
from bridge.protocol.singer.state import is_flat, known_as
from bridge.protocol.singer.state_edits import streams_of, without_bookmarks
from bridge.settings.commands import reload
from bridge.settings.destination import APPEND_ONLY
from bridge.settings.options import Pipeline

_RUNS = 20
"""How many of the latest runs are searched for a stream's load method."""


def reset(pipeline: Pipeline, state: Any, streams: Iterable[str]) -> Any:
    """The STATE without the bookmarks of these streams, or of all. Raises `SettingsError` if there is none to clear."""
    names = [known_as(state, pipeline.names_of(stream)) for stream in streams]
    if names:
        return without_bookmarks(state, names)
    if state is None:
        raise SettingsError("there is no STATE to clear", hint="the next run starts from the beginning already")
    return {"bookmarks": {}} if isinstance(state, dict) and "bookmarks" in state else {}


def would_double(pipeline: Pipeline, log: Log, state: Any, streams: Collection[str], name: str) -> str:
    """Say which tables would have each row twice after the next run if these bookmarks, or all, were cleared.

    `pipeline` knows all names of its streams; `name` is what to type to choose it. Empty if there is none.
    """
    tables = log.snapshot(log.latest()).stream_tables
    cleared = pipeline.all_names(streams or (tables if is_flat(state) else streams_of(state)))
    rows = {stream: tables[stream].rows for stream in sorted(cleared) if stream in tables}
    methods = _load_methods(pipeline, log)
    doubled = [s for s, number in rows.items() if number and methods.get(s, APPEND_ONLY) == APPEND_ONLY]
    if not doubled or not pipeline.incremental.enabled:
        return ""
    first = [f"{stream} ({rows[stream]:,}{' rows' if not place else ''})" for place, stream in enumerate(doubled)]
    names = " and ".join(filter(None, (", ".join(first[:-1]), first[-1])))
    are, their, them = ("are", "their", "them") if len(doubled) > 1 else ("is", "its", "it")
    again = list(streams) or (doubled if pipeline.appends_only() else [])
    return (
        f"{names} {are} append-only: the next run adds all {their} rows again; "
        f"to load {them} anew without doubles: {reload(pipeline, again, name)}"
    )


def _load_methods(pipeline: Pipeline, log: Log) -> dict[str, str]:
    """Each stream's load method: from the settings, else from the latest run with that stream."""
    methods: dict[str, str] = {}
    for run in read_opened(log.storage, log.pipeline, _RUNS):
        for stream, result in run.streams.items():
            methods.setdefault(stream, (result.load_method or APPEND_ONLY).split()[0])
    declared = {stream: pipeline.load_method(stream) for stream in log.snapshot(log.latest()).stream_tables}
    return methods | {stream: method for stream, method in declared.items() if method != "auto"}
