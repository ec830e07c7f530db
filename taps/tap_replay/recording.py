"""The contents of a recorded file: its streams, its STATEs, and where a replay may resume."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from tap_replay.config import TapError, read_json

_CHUNK = 1 << 20


@dataclass
class Place:
    """Where a replay begins: a byte offset, and the SCHEMA lines that are needed first because they lie before it."""

    offset: int = 0
    schemas: list[bytes] = field(default_factory=list)


class Lines:
    """Says what a line is, mostly without parsing it: RECORD lines of one stream begin with the same bytes."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[str, str]] = {}

    def kind(self, line: bytes) -> tuple[str, str]:
        """(type, stream) of a line; ("", "") if it is not a Singer message."""
        head, key, _ = line.partition(b'"record"')
        # a head that names the stream names the type too, with every known writer; others are parsed in full
        cacheable = bool(key) and b'"stream"' in head and b'"type"' in head
        if cacheable and head in self._seen:
            return self._seen[head]
        message = parse(line)
        kind = (str(message.get("type", "")), str(message.get("stream", "")))
        if cacheable and kind[0] == "RECORD":
            self._seen[head] = kind
        return kind


def open_recording(path: str) -> IO[bytes]:
    """The file, decompressed if its name ends in .gz."""
    try:
        if path.endswith(".gz"):
            # a GzipFile is read like a file; its declared type is wider
            return gzip.open(path, "rb")  # type: ignore[return-value]
        return open(path, "rb")
    except OSError as error:
        raise TapError(f"cannot read the recording: {error}") from error


def parse(line: bytes) -> dict[str, Any]:
    """The message in a line; empty if the line is not a JSON object. A recording may contain anything."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def find_place(path: str, state_path: str) -> Place | None:
    """The place after the last STATE line that equals this state; None if there is none.

    SCHEMA lines before the place are named again only for streams that go on without one of their own: a stream that
    was finished must not look like one that is empty now.
    """
    expected = _canonical(read_json(state_path, "state"))
    lines, place, offset = Lines(), None, 0
    schemas: dict[str, bytes] = {}
    before: dict[str, bytes] = {}
    own: set[str] = set()
    needed: set[str] = set()
    with open_recording(path) as file:
        for line in file:
            offset += len(line)
            kind, stream = lines.kind(line)
            if kind == "STATE" and _canonical(parse(line).get("value")) == expected:
                place, before, own, needed = Place(offset), dict(schemas), set(), set()
            elif kind == "SCHEMA":
                schemas[stream] = line
                own.add(stream)
            elif stream not in own:
                needed.add(stream)
    if place:
        place.schemas = [line for stream, line in before.items() if stream in needed]
    return place


def discover(path: str) -> dict[str, Any]:
    """A catalog made from the SCHEMA lines; the last one of a stream counts."""
    entries: dict[str, dict[str, Any]] = {}
    for line in _lines_with(b"SCHEMA", path):
        message = parse(line)
        if message.get("type") == "SCHEMA" and "stream" in message:
            entries[message["stream"]] = _entry(message)
    return {"streams": list(entries.values())}


def _lines_with(text: bytes, path: str) -> Iterator[bytes]:
    """Looks at many lines at once, so that the others cost little."""
    with open_recording(path) as file:
        while data := file.read(_CHUNK) + file.readline():
            if text in data:
                yield from (line for line in data.split(b"\n") if text in line)


def deselected(catalog_path: str) -> set[str]:
    """The streams that a catalog names and does not select."""
    catalog = read_json(catalog_path, "catalog")
    try:
        return {entry.get("tap_stream_id") or entry["stream"] for entry in catalog["streams"] if not _selected(entry)}
    except (KeyError, TypeError, AttributeError) as error:
        raise TapError("the catalog is not a Singer catalog: it needs streams, each with a tap_stream_id") from error


def _entry(message: dict[str, Any]) -> dict[str, Any]:
    keys, bookmark = message.get("key_properties") or [], message.get("bookmark_properties") or []
    root: dict[str, Any] = {"inclusion": "available", "selected": True, "table-key-properties": keys}
    # without bookmark_properties nothing is claimed: on a guess of FULL_TABLE a reader would replace a table
    if bookmark:
        root.update({"replication-method": "INCREMENTAL", "valid-replication-keys": bookmark})
        root["replication-key"] = bookmark[0]
    schema = message.get("schema") or {}
    metadata: list[dict[str, Any]] = [{"breadcrumb": [], "metadata": root}]
    metadata += [
        {"breadcrumb": ["properties", name], "metadata": {"inclusion": "automatic"}}
        for name in schema.get("properties") or {}
    ]
    names = {"tap_stream_id": message["stream"], "stream": message["stream"]}
    return {**names, "key_properties": keys, "schema": schema, "metadata": metadata}


def _selected(entry: dict[str, Any]) -> bool:
    """Metadata decides; without it the keys of older catalogs, `selected` beside or inside the schema."""
    roots: Iterable[dict[str, Any]] = (
        item["metadata"] for item in entry.get("metadata") or () if not item["breadcrumb"]
    )
    for place in (*roots, entry, entry.get("schema") or {}):
        if "selected" in place:
            return place["selected"] is True
    return False


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
