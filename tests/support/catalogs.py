"""Catalogs as taps print them, in both styles."""

from __future__ import annotations

from typing import Any


def stream(name: str, columns: str = "id secret_pin note", **root: Any) -> dict[str, Any]:
    """Return a stream as SDK taps describe it; `id` is automatic."""
    properties = {column: {"type": ["null", "string"]} for column in columns.split()}
    metadata = [{"breadcrumb": [], "metadata": {key.replace("_", "-"): value for key, value in root.items()}}]
    metadata += [
        {
            "breadcrumb": ["properties", column],
            "metadata": {"inclusion": "automatic" if column == "id" else "available"},
        }
        for column in properties
    ]
    return {"tap_stream_id": name, "stream": name, "schema": {"properties": properties}, "metadata": metadata}


def old_stream(name: str, columns: str = "id note", **facts: Any) -> dict[str, Any]:
    """Return a stream as taps describe it that know no metadata; `id` is automatic."""
    properties: dict[str, Any] = {column: {"type": "string"} for column in columns.split()}
    properties["id"]["inclusion"] = "automatic"
    return {"stream": name, "tap_stream_id": name, "schema": {"properties": properties}, **facts}


def catalog(*streams: dict[str, Any]) -> dict[str, Any]:
    return {"streams": list(streams)}


def columns(chosen: dict[str, Any], name: str) -> set[str]:
    """Return the columns of a stream that a tap would send, whichever style it reads."""
    (entry,) = (s for s in chosen["streams"] if s["tap_stream_id"] == name)
    said = {m["breadcrumb"][1]: m["metadata"] for m in entry.get("metadata", ()) if m["breadcrumb"]}
    facts = {column: schema | said.get(column, {}) for column, schema in entry["schema"]["properties"].items()}
    return {
        column
        for column, mark in facts.items()
        if mark.get("inclusion") == "automatic"
        or (mark.get("inclusion") != "unsupported" and mark.get("selected", True))
    }
