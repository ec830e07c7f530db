"""Checks before bookmarks are changed: does the stream exist, and which rows would be loaded twice?"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bridge.cli.selection import ChosenPipeline
from bridge.errors import SettingsError, did_you_mean
from bridge.exact_json import dumps
from bridge.load.tap.catalog_store import CatalogStore
from bridge.protocol.singer.catalog import stream_ids
from bridge.protocol.singer.state_edits import contexts_of, parsed, partition_of, streams_of

_LISTED = 5
"""Contexts that a hint names."""


def expect_existing(chosen: ChosenPipeline, state: Any, stream: str) -> None:
    """Raise `SettingsError` for a stream that is in neither catalog, tables nor STATE, unless these are all empty."""
    log = chosen.log
    existing = {*streams_of(state), *log.snapshot(log.latest()).stream_tables}
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
