"""Records of the commit log as JSON: read with every digit, written as they were read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from msgspec import convert, json, structs, to_builtins

from bridge.exact_json import WrittenNumber, dumps
from bridge.lake.file_records import UNKNOWN, PendingFile, RejectFile
from bridge.lake.records import PLAIN, CommitRecord, StagedTable, TapGroup

# msgspec looks into a type when it is first used. Two threads that do so at once crash the process: so here, at import.
json.Decoder(CommitRecord)

_Record = TypeVar("_Record", StagedTable, PendingFile, RejectFile, TapGroup)


def read_commit(raw: Any) -> CommitRecord:
    """Read a record that `exact_json.loads` has parsed. Raises `ValidationError` for a field that is missing or odd."""
    record = convert(raw, CommitRecord)
    staged = {name: _stage(stage, raw["staged"][name]) for name, stage in record.staged.items()}
    facts: dict[str, Any] = {"staged": staged}
    if record.groups:
        facts["groups"] = _keep_all(record.groups, raw["groups"])
    if record.rejects:
        facts["rejects"] = _keep_all(record.rejects, raw["rejects"])
    if record.rejected:
        facts["rejected"] = {key: _keep(file, raw["rejected"][key]) for key, file in record.rejected.items()}
    return structs.replace(record, **facts)


def _stage(stage: StagedTable, raw: Mapping[str, Any]) -> StagedTable:
    facts: dict[str, Any] = {"files": _keep_all(stage.files, raw["files"])}
    if stage.rejects:
        facts["rejects"] = _keep_all(stage.rejects, raw["rejects"])
    return structs.replace(_keep(stage, raw), **facts)


def _keep_all(read: Collection[_Record], raw: Sequence[Mapping[str, Any]]) -> list[_Record]:
    return [_keep(one, each) for one, each in zip(read, raw, strict=True)]


def _keep(read: _Record, raw: Mapping[str, Any]) -> _Record:
    """Keep the keys that no field has."""
    names = read.__struct_encode_fields__
    unknown = {key: value for key, value in raw.items() if key not in names}
    return structs.replace(read, unknown=unknown) if unknown else read


def commit_bytes(record: CommitRecord) -> bytes:
    """A record as it is stored."""
    raw = to_builtins(record, builtin_types=(Decimal, WrittenNumber))
    for table in [*raw.get("tables", ()), *raw.get("snapshot", {}).values()]:
        if table.get("format") == PLAIN:  # msgspec leaves out a text only if it is the very same object
            del table["format"]
    for stage in raw["staged"].values():
        _spread(*stage["files"], *stage.get("rejects", ()))
    _spread(*raw["staged"].values())
    _spread(*raw.get("groups", ()), *raw.get("rejects", ()), *raw.get("rejected", {}).values())
    return dumps(raw, indent=1)


def _spread(*objects: dict[str, Any]) -> None:
    """Put the keys of a newer version where they were, beside the others."""
    for one in objects:
        one.update(one.pop(UNKNOWN, {}))
