"""Proposes how to replicate a stream, from its catalog entry alone: its keys, and columns that grow.

`add`, `select`, `discover` and error messages show the proposal; the user decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from bridge.exact_json import dumps
from bridge.protocol.singer.catalog import (
    StreamEntry,
    columns,
    key_properties,
    replication_key,
    replication_method,
    root_facts,
    stream_id,
)

Kind = Literal["updated", "created", "number"]
"""`updated`: a time that changes with every change of a row. `created`: a time set once. `number`: a growing key."""

_UPDATED = re.compile(
    r"(^|_)(updated?|modified|modif|modification|changed|last_?(update|modified|change)d?|lastmod|touched|write_date"
    r"|modstamp|systemmodstamp|mtime|row_?version_?(at|time))(_|$)"
)
_CREATED = re.compile(
    r"(^|_)(created?|creation|inserted|added|occurred|happened|received|logged|event|published|posted"
    r"|timestamp|recorded|(at|ts|time|date)$)(_|$)"
)
_TIMES = re.compile(r"\b(timestamp|timestamptz|datetime)", re.IGNORECASE)
_ORDER: tuple[Kind, ...] = ("updated", "created", "number")


BREAKS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"})
"""What ends a line of YAML, and none of JSON: as JSON escapes it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column that a tap could replicate by."""

    column: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal for one stream."""

    stream: str
    """The stream's id in the catalog."""
    keys: tuple[str, ...]
    """The columns that identify a row; empty if none are known."""
    candidates: tuple[Candidate, ...]
    """The recommended one first."""
    declared: str | None
    """The replication method in the catalog, if it has one."""
    method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]
    replication_key: str | None
    load_method: Literal["auto", "upsert", "append-only"]
    reason: str
    has_log: bool = False
    """Whether the log of its database has its changes."""

    def settings(self) -> dict[str, str]:
        """As the keys of `streams.<stream>` in bridge.yaml."""
        keys = {"replication_method": str(self.method)}
        if self.replication_key:
            keys["replication_key"] = self.replication_key
        return keys | ({"load_method": str(self.load_method)} if self.load_method != "auto" else {})

    def line(self) -> str:
        """As a line to paste below `streams:` in bridge.yaml."""
        keys = ", ".join(f"{name}: {yaml_value(value)}" for name, value in self.settings().items())
        return f"{yaml_text(self.stream)}: {{{keys}}}"


def yaml_text(text: str) -> str:
    """A text in YAML, quoted only if necessary."""
    return text if re.fullmatch(r"[A-Za-z_][\w-]*", text) else dumps(text, ascii_only=False).decode().translate(BREAKS)


def yaml_value(text: str) -> str:
    """The same as a value: a column may be called `${cmd:...}`, which in bridge.yaml would be more than a name."""
    return yaml_text(text.replace("${", "$${"))


def propose(entry: StreamEntry, nulls: Collection[str] = (), log: str | None = None) -> Proposal:
    """Propose for a stream of a catalog; the catalog's own method and key stay.

    `nulls`: columns with NULLs. No incremental run sees such a row again, so none of them is proposed. `log`: why the
    log of the database does not tell the table's changes, empty if it does, None if that is not known.
    """
    name, alone = stream_id(entry), {"streams": [entry]}
    keys, candidates = tuple(key_properties(entry)), _candidates(entry)
    whole = [one for one in candidates if one.column not in nulls]
    declared, chosen = replication_method(alone, name), replication_key(alone, name)
    column = chosen or next((one.column for one in whole if one.kind == "updated"), None)
    method = declared if declared in ("FULL_TABLE", "INCREMENTAL", "LOG_BASED") else None
    has_log = log == "" and bool(keys)
    method = method or ("LOG_BASED" if has_log and not chosen else None)
    method = method or ("INCREMENTAL" if chosen or (column and keys) else "FULL_TABLE")
    if method == "INCREMENTAL" and column is None and candidates:
        column = (whole or candidates)[0].column
    column = column if method == "INCREMENTAL" else None
    merges = bool(keys) and method != "FULL_TABLE"
    return Proposal(
        stream=name,
        keys=keys,
        candidates=candidates,
        declared=declared,
        method=method,  # type: ignore[arg-type]
        replication_key=column,
        load_method="upsert" if merges else "auto",
        reason=_reason(declared, method, column, keys)
        + _of_nulls(candidates, column, nulls)
        + _of_log(log if keys else None, declared),
        has_log=has_log,
    )


def _reason(declared: str | None, method: str, column: str | None, keys: tuple[str, ...]) -> str:
    if declared:
        return f"the catalog says {declared}"
    by = f", merged by {', '.join(keys)}" if keys else ""
    if method == "LOG_BASED":
        return f"the server's log has each insert, update and delete{by}"
    if method == "INCREMENTAL":
        return f"{column} tells which rows are new or changed{by}; deleted rows stay"
    if keys:
        return "no column tells which rows have changed; each run loads the whole table"
    return "it has no key: each run loads the whole table"


def _of_nulls(candidates: Collection[Candidate], column: str | None, nulls: Collection[str]) -> str:
    """Why a column is not proposed, or what the chosen one leaves out."""
    if column in nulls:
        return f"; {column} is NULL in some rows: incremental runs do not see these again"
    left = [one.column for one in candidates if one.column in nulls and one.kind == "updated"]
    return f"; {', '.join(left)}: NULL in some rows, which incremental runs would not see again" if left else ""


def _of_log(log: str | None, declared: str | None) -> str:
    """Why the table is not read from the log."""
    return f"; the log has no changes of it: {log}" if log and not declared else ""


def _candidates(entry: StreamEntry) -> tuple[Candidate, ...]:
    """The columns to replicate by: those that the tap names, if it names any, else those that look like it."""
    top = {path[0]: schema for path, schema in columns(entry).items() if len(path) == 1}
    types = _sql_types(entry)
    keys = key_properties(entry)
    valid = [str(name) for name in root_facts(entry).get("valid-replication-keys") or ()]
    candidates = []
    for name, schema in top.items():
        if valid and name not in valid:
            continue
        kind = _kind(name, schema, types.get(name, ""), is_key=keys == [name], is_valid=bool(valid))
        if kind:
            candidates.append(Candidate(name, kind))
    return tuple(sorted(candidates, key=lambda one: _ORDER.index(one.kind)))


def _kind(name: str, schema: dict[str, Any], sql: str, *, is_key: bool, is_valid: bool) -> Kind | None:
    words, kinds = _snake(name), _types(schema)
    if schema.get("format") == "date-time" or _TIMES.search(sql):
        if _UPDATED.search(words):
            return "updated"
        return "created" if is_valid or _CREATED.search(words) else None
    if "integer" in kinds and (is_key or is_valid):
        return "number"
    return "created" if is_valid else None


def _snake(name: str) -> str:
    """A column's name in words: `lastModifiedDate` is `last_modified_date`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").replace(" ", "_").lower()


def _types(schema: dict[str, Any]) -> list[str]:
    types = schema.get("type") or ()
    return [types] if isinstance(types, str) else [str(one) for one in types]


def _sql_types(entry: StreamEntry) -> dict[str, str]:
    """The database's types by column, from taps of databases."""
    return {
        str(one["breadcrumb"][1]): str((one.get("metadata") or {}).get("sql-datatype") or "")
        for one in entry.get("metadata") or ()
        if len(one.get("breadcrumb") or ()) == 2
    }
