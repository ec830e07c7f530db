"""Writes what `streams` of bridge.yaml says about a stream's replication into the catalog that the tap gets.

Taps of the Singer SDK read the keys beside the schema, others those in the metadata, so both say the same.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from bridge.errors import SettingsError, did_you_mean
from bridge.exact_json import dumps
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    columns,
    has_metadata,
    record_name,
    replication_key,
    replication_method,
    root_facts,
    selected_streams,
    stream_id,
    stream_ids,
    stream_names,
    write,
)
from bridge.settings.destination import StreamKeys
from bridge.settings.options import Pipeline

_OF_TAP = ("replication_method", "replication_key")
"""Settings that only the tap can apply; `key_properties` also apply to the table, whatever the tap does with them."""

_ABOUT_METHODS = re.compile(r"replication[ _-]?method|FULL[ _]TABLE", re.IGNORECASE)
"""How taps complain that a stream has no replication method."""

_LISTED = 8

_OF_TAP_ALONE = "_sdc_"
"""The prefix of columns that a tap adds to a table's own: the catalog does not list them."""

_LSN = "_sdc_lsn"
"""meltanolabs-tap-postgres' column for the position in PostgreSQL's log."""


def wants_catalog(pipeline: Pipeline) -> bool:
    """Whether the settings override something that only a catalog can tell the tap."""
    return any(getattr(keys, key) is not None for keys in pipeline.streams.values() for key in _OF_TAP)


def wanted_methods(words: str, pipeline: Pipeline, catalog: Catalog | None) -> str:
    """A hint for a tap that failed because streams have no replication method; empty if that was not the reason."""
    lacking = sorted(s for s in selected_streams(catalog or {"streams": []}) if not replication_method(catalog, s))
    if not lacking or not _ABOUT_METHODS.search(words):
        return ""
    example = dumps(lacking[0] if len(lacking) == 1 else "*").decode().strip()
    return (
        f"no replication method is set for {', '.join(lacking[:_LISTED])}{' ...' if lacking[_LISTED:] else ''}: "
        f"set it in the catalog, or in bridge.yaml under pipelines.{pipeline.name}:\n"
        f"  streams: {{{example}: {{replication_method: FULL_TABLE}}}}   # or INCREMENTAL, with a replication_key\n"
    )


def overridden(catalog: Catalog, pipeline: Pipeline, loaded: Collection[str]) -> tuple[Catalog, list[str]]:
    """The catalog with the pipeline's overrides for these streams, and notes for the operator.

    Raises `SettingsError` for what the tap does not offer: a method, a replication key, a column.
    """
    if not pipeline.streams and not any(_misses_lsn(stream) for stream in catalog["streams"]):
        return catalog, []
    result, notes = copy.deepcopy(catalog), _check_globs(catalog, pipeline)
    pipeline = named(pipeline, catalog)
    for stream in result["streams"]:
        if stream_id(stream) in loaded:
            notes += _override(stream, pipeline.stream(stream_id(stream)))
    return result, notes


def with_methods(catalog: Catalog) -> Catalog:
    """The catalog with FULL_TABLE for each stream whose method nobody chose: every tap can do that.

    Taps of databases that leave the choice to their user fail at such a stream.
    """
    result = copy.deepcopy(catalog)
    for stream in result["streams"]:
        name, alone = stream_id(stream), {"streams": [stream]}
        if not replication_method(alone, name) and not replication_key(alone, name):
            _set(stream, {"replication-method": "FULL_TABLE"})
    return result


def named(pipeline: Pipeline, catalog: Catalog | None) -> Pipeline:
    """The pipeline with its streams' names: settings for either of a stream's names apply to it."""
    return pipeline.model_copy(update={"names": stream_names(catalog)}) if catalog else pipeline


def unmatched_globs(pipeline: Pipeline, names: Collection[str]) -> list[str]:
    """The globs under `streams` that match none of these names. `*` may match nothing."""
    return [glob for glob in pipeline.streams if glob != "*" and not any(fnmatchcase(name, glob) for name in names)]


def _check_globs(catalog: Catalog, pipeline: Pipeline) -> list[str]:
    """Raise `SettingsError` for settings of a stream that does not exist; for those of `defaults` return a note."""
    names = {name for stream in catalog["streams"] for name in (stream_id(stream), record_name(stream))}
    notes = list[str]()
    for glob in unmatched_globs(pipeline, names) if names else ():
        guess = did_you_mean(glob, names)
        if glob in pipeline.inherited:
            notes.append(f"streams.{glob} of the settings matches no stream. {guess}".strip())
            continue
        listed = ", ".join(stream_ids(catalog)[:_LISTED]) + (" ..." if len(catalog["streams"]) > _LISTED else "")
        hint = f"{guess or f'the catalog has: {listed}'}; --refresh-catalog finds new tables"
        raise SettingsError("settings for a stream that the tap does not have", hint=hint, glob=f"streams.{glob}")
    return notes


def without_log(catalog: Catalog, streams: Collection[str]) -> tuple[Catalog, list[str]]:
    """The catalog with FULL_TABLE for those of these streams that are LOG_BASED, and their ids.

    A trial must not read a log: what a replication slot gave once, no later run gets.
    """
    return _in_full(catalog, streams, lambda method, _: method == "LOG_BASED")


def in_full(catalog: Catalog, streams: Collection[str]) -> Catalog:
    """The catalog with FULL_TABLE for these streams, but for those whose tap knows no other method than its own.

    Without a STATE those come from their beginning, which is what the lake has been loaded from, too.
    """
    return _in_full(catalog, streams, lambda method, facts: method == "LOG_BASED" or _may_choose(facts))[0]


def _in_full(
    catalog: Catalog, streams: Collection[str], chosen: Callable[[str | None, Mapping[str, Any]], bool]
) -> tuple[Catalog, list[str]]:
    result, changed = copy.deepcopy(catalog), list[str]()
    for stream in result["streams"]:
        name = stream_id(stream)
        method = replication_method({"streams": [stream]}, name)
        if name in streams and method != "FULL_TABLE" and chosen(method, root_facts(stream)):
            _set(stream, {"replication-method": "FULL_TABLE", "replication-key": None})
            changed.append(name)
    return result, changed


def _may_choose(facts: Mapping[str, Any]) -> bool:
    """Whether the tap lets its user choose: for tables of databases a forced method is only its default."""
    return "schema-name" in facts or not facts.get("forced-replication-method")


def _override(stream: StreamEntry, keys: StreamKeys) -> list[str]:
    name, alone = stream_id(stream), {"streams": [stream]}
    facts: dict[str, Any] = {}
    method = keys.replication_method or replication_method(alone, name)
    key = keys.replication_key or replication_key(alone, name)
    if keys.replication_method:
        _check_method(stream, keys.replication_method)
    if keys.replication_key:
        _check_key(stream, keys.replication_key)
        method = method or "INCREMENTAL"
    if keys.replication_method == "INCREMENTAL" and not key:
        key = _only_key(stream)
    if keys.replication_method or (keys.replication_key and method == "INCREMENTAL"):
        facts["replication-method"] = method
    if keys.replication_key or (keys.replication_method == "INCREMENTAL" and key):
        facts["replication-key"] = key
    if keys.key_properties is not None:
        _check_columns(stream, "key_properties", keys.key_properties)
        facts[_key_name(stream)] = keys.key_properties
    _set(stream, facts)
    if _misses_lsn(stream):
        _set(stream, {"replication-key": _LSN})
    if keys.replication_key and method != "INCREMENTAL" and not keys.replication_key.startswith(_OF_TAP_ALONE):
        return [f"the replication key {key} of {name} has no effect: its replication method is {method}"]
    return []


def _key_name(stream: StreamEntry) -> str:
    view = root_facts(stream).get("is-view") or stream.get("is_view")
    return "view-key-properties" if view else "table-key-properties"


def _set(stream: StreamEntry, facts: dict[str, Any]) -> None:
    """Write facts into a catalog entry, in both places, and select the columns that they name."""
    if not facts:
        return
    if has_metadata(stream):
        write(stream, {(): facts})
    for key, value in facts.items():
        stream[key.replace("-", "_") if "key-properties" not in key else "key_properties"] = value
    needed = [facts.get("replication-key"), *(facts.get(_key_name(stream)) or ())]
    declared = columns(stream)
    listed = [name for name in needed if name and ((name,) in declared or not name.startswith(_OF_TAP_ALONE))]
    write(stream, {(column,): {"selected": True} for column in listed})


def _misses_lsn(stream: StreamEntry) -> bool:
    """Whether meltanolabs-tap-postgres would read this stream from the start of its slot in each run.

    It compares the bookmark with `_sdc_lsn` only if the catalog names that as the replication key, which no user does.
    The tap of pipelinewise, which needs no such key, names the database in its catalog.
    """
    facts, name, alone = root_facts(stream), stream_id(stream), {"streams": [stream]}
    of_tap = "schema-name" in facts and "forced-replication-method" in facts and "database-name" not in facts
    return of_tap and replication_method(alone, name) == "LOG_BASED" and not replication_key(alone, name)


def _check_method(stream: StreamEntry, method: str) -> None:
    """Refuse another method than the one that the tap forces; for database tables that is only the tap's default."""
    facts = root_facts(stream)
    forced = str(facts.get("forced-replication-method") or "").upper()
    if forced != method and not _may_choose(facts):
        hint = f"it offers {forced}; correct or remove streams.<stream>.replication_method"
        raise SettingsError(
            "the tap does not offer this replication method", hint=hint, stream=stream_id(stream), method=method
        )


def _check_key(stream: StreamEntry, key: str) -> None:
    valid = [str(name) for name in root_facts(stream).get("valid-replication-keys") or ()]
    if valid and key not in valid:
        hint = did_you_mean(key, valid) or f"it offers: {', '.join(valid)}"
        raise SettingsError("the tap cannot replicate by this key", hint=hint, stream=stream_id(stream), key=key)
    _check_columns(stream, "replication_key", [key])


def _only_key(stream: StreamEntry) -> str | None:
    """The only key to replicate by, None if the tap itself knows it. Raises `SettingsError` if there are several."""
    facts = root_facts(stream)
    valid = [str(name) for name in facts.get("valid-replication-keys") or ()]
    if len(valid) == 1:
        return valid[0]
    if str(facts.get("forced-replication-method") or "").upper() == "INCREMENTAL" and "schema-name" not in facts:
        return None
    hint = "set streams.<stream>.replication_key" + (f" to one of: {', '.join(valid)}" if valid else "")
    raise SettingsError("INCREMENTAL needs a replication key", hint=hint, stream=stream_id(stream))


def _check_columns(stream: StreamEntry, setting: str, names: Iterable[str]) -> None:
    declared = [path[0] for path in columns(stream) if len(path) == 1]
    for name in names if declared else ():
        if name not in declared and not name.startswith(_OF_TAP_ALONE):
            hint = did_you_mean(name, declared) or f"it has: {', '.join(declared[:20])}"
            raise SettingsError(
                f"{setting}: the stream has no such column", hint=hint, stream=stream_id(stream), column=name
            )
