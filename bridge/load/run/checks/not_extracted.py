"""Data that a tap does not give us as they are: columns of types that it does not know, or rounded; whole tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

from bridge.lake.runs import Difference
from bridge.load.run.tables.undeclared import listed
from bridge.load.tap.digits import digits_of
from bridge.protocol.schema.valid import MAX_DIGITS
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    column_facts,
    columns,
    entries_by_name,
    replication_method,
    root_facts,
    selected_streams,
)
from bridge.protocol.singer.replication import yaml_text
from bridge.settings.commands import full_run, reload
from bridge.settings.options import Pipeline

_OF_A_DOUBLE = 15
"""Digits that a double always holds."""
_FLOAT = re.compile(r"float\b")
"""MySQL's type of four bytes; PostgreSQL calls its own `real`."""

_IGNORED = re.compile(rb"Properties \((.+?)\) were present in the '(.+?)' stream but not found in catalog schema")
"""The Singer SDK's line on fields that it takes out of its records, once for each set of them."""
_TABLE = re.compile(rb'Syncing table "(.+?)"')
_SKIPPED = re.compile(
    rb'Skipping (?:matched file )?"?(?P<file>[^"]+?)"? (?:file )?(?:as|because)\b'
    rb'|"(?P<other>[^"]+)" (?:without extension will not|having the "[^"]*" extension will not) be synced'
)
"""How tap-s3-csv and tap-sftp say that they leave out a file that their settings choose."""
_EMPTY = re.compile(rb"as it is empty")
_NAMED = 5
_MOST = 0.9
"""The share of a collection below which documents were left out: what a server counts may be some minutes old."""


def not_extracted(catalog: Catalog | None, new: AbstractSet[str]) -> Iterator[Difference]:
    """Differences of each new table that has such columns. Said once: `new` are the streams that the lake did not have.

    wal2json writes the numbers of PostgreSQL's log as JSON, and the taps that read it make doubles of them. The tap of
    MySQL makes a double of the four bytes of a `float`: 0.10000000149011612 of 0.1.
    """
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(new & entries.keys()):
        facts = column_facts(entries[name])
        columns = [".".join(path) for path in facts if facts[path].get("inclusion") == "unsupported"]
        if columns:
            text = (
                f"the tap cannot extract {', '.join(columns)}: the lake has no value of them. To load them, make a "
                "view in the database that casts them to text, and select the view"
            )
            yield Difference(name, "unsupported_column", text)
        if replication_method(catalog, name) == "LOG_BASED":
            yield from _rounded(name, entries[name])


def without_rows(catalog: Catalog | None, streams: AbstractSet[str]) -> Iterator[Difference]:
    """Differences of `streams`, of which nothing came and the lake has nothing, though the tap counted rows.

    Some taps, that of DynamoDB among them, extract nothing of a stream without a replication method, and end well.
    """
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(streams & entries.keys()):
        rows = root_facts(entries[name]).get("row-count")
        if isinstance(rows, int) and rows > 0 and replication_method(catalog, name) is None:
            text = (
                f"the tap counted {rows:,} rows and sent none, as nothing says how the stream is replicated. Write "
                f"into bridge.yaml: streams: {{{yaml_text(name)}: {{replication_method: FULL_TABLE}}}}"
            )
            yield Difference(name, "no_rows", text, rows)


def nothing_sent(catalog: Catalog, command: Sequence[str]) -> Iterator[Difference]:
    """A difference of each stream that the catalog selects, of a tap that ended well and sent no message of any.

    It may not have read the catalog: some taps know the flag --catalog, and read --properties only.
    """
    other = f"source.tap: {shlex.join([*command, '--properties'])}"
    text = (
        "the catalog selects it, and the tap ended well without a word of it: it may take its catalog by an older "
        f"flag. Try {other}"
    )
    for name in selected_streams(catalog):
        yield Difference(name, "nothing_sent", text)


def _rounded(name: str, entry: StreamEntry) -> Iterator[Difference]:
    facts = column_facts(entry)
    long = [column for column, digits in _numerics(entry) if digits > _OF_A_DOUBLE]
    short = [".".join(path) for path in facts if _FLOAT.match(str(facts[path].get("sql-datatype", "")))]
    for names, place in ((long, "fifteenth"), (short, "seventh")):
        if names:
            text = (
                f"the tap makes doubles of numbers in the log, so {', '.join(names)} may have other digits after "
                f"the {place}, also in a key. If they matter, set replication_method: FULL_TABLE or INCREMENTAL"
            )
            yield Difference(name, "log_digits", text)


def _numerics(entry: StreamEntry) -> Iterator[tuple[str, int]]:
    """The columns of PostgreSQL's type `numeric`, each with its number of digits."""
    schemas, facts = columns(entry), column_facts(entry)
    for path, schema in schemas.items():
        kind = str(facts[path].get("sql-datatype", "")).lower()
        if kind.startswith("numeric") and not kind.endswith("[]"):
            declared = digits_of(kind)
            yield ".".join(path), declared[0] if declared else _digits(schema)


def _digits(schema: dict[str, Any]) -> int:
    """How many digits a number may have, as far as its schema says: by `precision`, or its bounds and `multipleOf`."""
    if isinstance(precision := schema.get("precision"), int):
        return precision
    bound, step = schema.get("maximum"), schema.get("multipleOf")
    if not bound:
        return 0 if step else MAX_DIGITS
    scale = max(0, -int(Decimal(str(step)).normalize().as_tuple().exponent)) if step else 0
    return len(str(int(bound) - 1)) + scale


def left_out(log: Iterable[bytes], streams: Collection[str], pipeline: Pipeline) -> Iterator[Difference]:
    """The differences that a tap's log tells of the `streams` that it sent."""
    ignored, skipped, table = dict[str, dict[str, None]](), dict[str, dict[str, None]](), ""
    for line in log:
        if b"Ignoring" in line and (match := _IGNORED.search(line)):
            ignored.setdefault(_text(match[2]), {}).update(dict.fromkeys(re.findall(r"'([^']+)'", _text(match[1]))))
        elif match := _TABLE.search(line):
            table = _text(match[1])
        elif table and (match := _SKIPPED.search(line)) and not _EMPTY.search(line):
            skipped.setdefault(table, {})[_text(match["file"] or match["other"])] = None
    for stream in sorted(ignored.keys() & set(streams)):
        yield Difference(stream, "ignored_fields", _of_fields(listed([*ignored[stream]], _NAMED), stream, pipeline))
    for stream in sorted(skipped.keys() & set(streams)):
        files = listed([*skipped[stream]], _NAMED)
        yield Difference(stream, "skipped_file", _of_files(files, stream, pipeline), len(skipped[stream]))


def _of_fields(names: str, stream: str, pipeline: Pipeline) -> str:
    return (
        f"the source has {names}, which the tap's catalog does not, so the tap left the values out. If "
        f"`singer-bridge discover {pipeline.name}` does not find them, add them to the schema in the catalog; then "
        f"{reload(pipeline, [stream])}"
    )


def _of_files(names: str, stream: str, pipeline: Pipeline) -> str:
    return (
        f"the tap could not read {names} and went on: its bookmark is past them, so no later run reads them. "
        f"`singer-bridge runs show {pipeline.name} --logs` says why; mend them, then write them anew, so that they are "
        f"newer than the bookmark, or {reload(pipeline, [stream])}"
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def left_documents(pipeline: str, catalog: Catalog | None, new: Mapping[str, int]) -> Iterator[Difference]:
    """Differences of each new collection of MongoDB of which far fewer documents came than its tap has counted.

    A FULL_TABLE asks for `_id <= GREATEST`, and the server compares only what has the type of GREATEST. `new` has the
    records of streams that the lake did not have.
    """
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(new.keys() & entries.keys()):
        facts = root_facts(entries[name])
        count = facts.get("row-count")
        if facts.get("table-key-properties") != ["_id"] or not isinstance(count, int):
            continue
        if replication_method(catalog, name) != "INCREMENTAL" and new[name] < count * _MOST:
            text = (
                f"{new[name]:,} documents came, and the tap counted {count:,}: it leaves out those whose `_id` has "
                "another type than the greatest `_id`. Set `replication_method: INCREMENTAL, replication_key: _id` for "
                f"the stream, then `{full_run(pipeline, [name])}` loads all of them"
            )
            yield Difference(name, "row_count", text, count - new[name])
