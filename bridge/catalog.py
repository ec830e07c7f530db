"""A Singer catalog: discovered, cached, narrowed to what the user selected. Both styles of metadata are kept."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Collection, Sequence
from typing import Any

import orjson

from bridge.errors import SettingsError, TapError

__all__ = ["deselected", "parse_catalog", "replication_method", "select", "selected_streams", "stream_ids"]

Catalog = dict[str, Any]


def parse_catalog(text: bytes) -> Catalog | None:
    """Return the catalog, or None when the first line is a Singer message: the tap does not discover, it runs."""
    first = text.lstrip().split(b"\n", 1)[0]
    try:
        if "type" in orjson.loads(first) and "streams" not in orjson.loads(first):
            return None
    except (orjson.JSONDecodeError, TypeError):
        pass
    try:
        catalog = orjson.loads(text)
        if not all(isinstance(stream, dict) for stream in catalog["streams"]):
            raise TypeError
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        hint = 'the tap\'s --discover, or the file given as `catalog`, must hold {"streams": [...]}'
        raise TapError("this is not a catalog", hint=hint) from error
    return dict(catalog)


def _id(stream: dict[str, Any]) -> str:
    return str(stream.get("tap_stream_id") or stream.get("stream"))


def stream_ids(catalog: Catalog) -> list[str]:
    """Return the streams' ids, in the catalog's order."""
    return [_id(stream) for stream in catalog["streams"]]


def _root(stream: dict[str, Any]) -> dict[str, Any]:
    """Return the stream's own metadata, wherever this catalog keeps it; a new entry if it keeps none."""
    entries: list[dict[str, Any]] = stream.setdefault("metadata", [])
    entry = next((entry for entry in entries if not entry.get("breadcrumb")), None)
    if entry is None:
        entry = {"breadcrumb": []}
        entries.append(entry)
    root: dict[str, Any] = entry.setdefault("metadata", {})
    return root


def replication_method(catalog: Catalog | None, stream: str) -> str | None:
    """Return the stream's replication method in capitals: forced, else chosen, else None."""
    for entry in (catalog or {}).get("streams", []):
        if stream in (_id(entry), entry.get("stream")):
            root = _root(copy.deepcopy(entry))
            method = (
                root.get("replication-method")
                or entry.get("replication_method")
                or root.get("forced-replication-method")
            )
            return str(method).upper() if method else None
    return None


def selected_streams(catalog: Catalog) -> set[str]:
    """Return the streams that a tap would sync with this catalog."""
    return {_id(s) for s in catalog["streams"] if _is_selected(s)}


def deselected(catalog: Catalog) -> set[str]:
    """Return every name of a stream that the catalog has and does not select."""
    names = {selected: set() for selected in (True, False)}  # type: dict[bool, set[str]]
    for stream in catalog["streams"]:
        names[_is_selected(stream)] |= {_id(stream), str(stream.get("stream") or _id(stream))}
    return names[False] - names[True]


def _is_selected(stream: dict[str, Any]) -> bool:
    root = _root(copy.deepcopy(stream))
    if root.get("inclusion") == "unsupported":
        return False
    for place in (root.get("selected"), stream.get("selected"), stream.get("schema", {}).get("selected")):
        if place is not None:
            return bool(place)
    return bool(root.get("selected-by-default")) or root.get("inclusion") == "automatic"


def select(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> Catalog:
    """Return a copy in which exactly the matching streams and columns are selected; the last match wins.

    `patterns` are globs on `stream` or `stream.column`, `!` excludes. `only` narrows to these streams; with no
    patterns it narrows what the catalog selects itself. Raises `SettingsError` when nothing is left.
    """
    result = copy.deepcopy(catalog)
    names = stream_ids(result)
    unknown = [name for name in only if name not in names]
    if unknown:
        raise SettingsError(
            "the catalog has no such stream", hint=f"it has: {', '.join(names[:20])}", stream=unknown[0]
        )
    for stream in result["streams"]:
        wanted = _matches(_id(stream), patterns, stream=True) if patterns else (_is_selected(stream) or bool(only))
        wanted = wanted and (not only or _id(stream) in only)
        _root(stream)["selected"] = wanted
        if "selected" in stream:
            stream["selected"] = wanted
        if patterns:
            _select_columns(stream, patterns)
    if not selected_streams(result):
        hint = f"the catalog has: {', '.join(names[:20])}"
        raise SettingsError("no stream is selected", hint=hint, select=list(patterns) or "the catalog's own")
    return result


def _matches(name: str, patterns: Sequence[str], *, stream: bool) -> bool:
    """Return whether the last pattern that speaks of `name` includes it; no such pattern: streams out, columns in."""
    chosen = not stream and True
    for pattern in patterns:
        glob, include = pattern.removeprefix("!"), not pattern.startswith("!")
        if fnmatch.fnmatchcase(name, glob):
            chosen = include
        elif stream and include and "." in glob and fnmatch.fnmatchcase(name, glob.rsplit(".", 1)[0]):
            chosen = True
    return chosen


def _select_columns(stream: dict[str, Any], patterns: Sequence[str]) -> None:
    name = _id(stream)
    dotted = [p for p in patterns if "." in p and not fnmatch.fnmatchcase(name, p.removeprefix("!"))]
    if not dotted:
        return
    listed = any(
        not p.startswith("!") and fnmatch.fnmatchcase(name, p.rsplit(".", 1)[0]) and not p.endswith(".*")
        for p in dotted
    )
    for column in stream.get("schema", {}).get("properties", {}):
        wanted = not listed
        for pattern in dotted:
            if fnmatch.fnmatchcase(f"{name}.{column}", pattern.removeprefix("!")):
                wanted = not pattern.startswith("!")
        entry = next((m for m in stream["metadata"] if m.get("breadcrumb") == ["properties", column]), None)
        if entry is None:
            entry = {"breadcrumb": ["properties", column], "metadata": {}}
            stream["metadata"].append(entry)
        if entry.setdefault("metadata", {}).get("inclusion") != "automatic":
            entry["metadata"]["selected"] = wanted
