"""Reject files: a JSON line for each record that cannot be stored as its schema says, with the reason and its bytes.

`{"format", "run", "stream", "reason", "pointer", "offset", "raw"}`: `pointer` is the JSON pointer of the value inside
the record, empty for the line as a whole. `offset` counts from 1: the stream's records of this run or, for what is no
Singer message, the lines of the tap's stdout. Bytes that are not UTF-8 are in `raw_base64`.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from bridge.errors import CorruptLake, DataError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.file_records import RejectFile
from bridge.lake.paths import folder_name, pipeline_key
from bridge.lake.storage import Storage
from bridge.load.spool.folder import Segment
from bridge.load.write.context import WriteContext
from bridge.load.write.report import Rejected
from bridge.protocol.decode.exact import Reject

_WHERE = ("reason", "pointer", "offset")
_LONGEST = 100
"""Characters of a value that an error shows."""


def reject_entry(reject: Reject, segment: Segment) -> dict[str, Any]:
    """The entry that is kept of a reject, whose line counts from the segment's first."""
    offset = segment.first + reject.line + 1
    where = {"reason": reject.reason, "pointer": reject.pointer, "offset": offset}
    return {"stream": segment.stream, **where, "raw": reject.raw}


def write_rejects(storage: Storage, context: WriteContext, stream: str | None, items: list[dict[str, Any]]) -> Rejected:
    """Keep rejects in a file, which counts once a commit names it. Without a stream: lines that are no message."""
    key = new_reject_file(context.pipeline, context.run, stream)
    lines = [orjson.dumps({"format": 1, "run": context.run} | item | _raw(item["raw"])) + b"\n" for item in items]
    storage.write(key, b"".join(lines))
    first: dict[str, Any] = {name: items[0][name] for name in _WHERE if name in items[0]}
    if value := value_at(items[0]["raw"], str(items[0].get("pointer", ""))):
        first["value"] = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    return Rejected(describe_file(stream, key, [str(item.get("reason", "")) for item in items], lines), first)


def new_reject_file(pipeline: str, run: str, stream: str | None) -> str:
    """A new key. It begins with the run, so that the file's age is the run's."""
    folder = folder_name(stream, ()) if stream is not None else "_tap"
    return pipeline_key(pipeline, "rejects", folder, f"{run}-{uuid.uuid4().hex}.jsonl")


def describe_file(
    stream: str | None, key: str, why: Iterable[str], lines: Sequence[bytes], *, refused: bool = False
) -> RejectFile:
    """The entry in a commit for a reject file with these `lines`; `why`: the reason of each."""
    reasons: dict[str, tuple[int, int]] = {}
    for reason, line in zip(why, lines, strict=True):
        count, size = reasons.get(reason, (0, 0))
        reasons[reason] = count + 1, size + len(line)
    return RejectFile(stream=stream, file=key, lines=len(lines), reasons=reasons, refused=refused)


def _raw(raw: bytes) -> dict[str, Any]:
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": None, "raw_base64": base64.b64encode(raw).decode()}


def raw_of(item: dict[str, Any]) -> bytes:
    """The bytes of a reject as the tap wrote them. Raises `CorruptLake` if the file lacks them."""
    try:
        return base64.b64decode(item["raw_base64"]) if item.get("raw") is None else str(item["raw"]).encode()
    except (KeyError, TypeError, binascii.Error) as error:
        raise CorruptLake("a reject has lost its bytes", hint="restore the file from a backup, or purge it") from error


def properties_of(raw: bytes) -> list[str]:
    """The names in the record of a reject; none if it has no record."""
    try:
        record = loads(raw)["record"]
    except (NotJson, LookupError, TypeError):
        return []
    return list(record) if isinstance(record, dict) else []


def value_at(raw: bytes, pointer: str) -> str | None:
    """The JSON of the value at a reject's pointer; None where that is the line as a whole."""
    try:
        value = loads(raw)["record"]
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            value = value[int(name) if isinstance(value, list) else name]
    except (NotJson, LookupError, TypeError, ValueError):
        return None
    return dumps(value).decode().rstrip() if pointer else None


def too_many(rejects: Rejected, rejected: int, limit: int) -> DataError:
    """The error of a run with more rejects than it may have. It shows the first one of the last file."""
    first = {name: value for name, value in rejects.first.items() if value != ""}
    where = {"stream": rejects.file.stream, **first, "file": rejects.file.file}
    if not limit:
        hint = "correct the tap or its schema; `rejects.on_reject: quarantine` keeps what does not fit, and goes on"
        return DataError("a record cannot be stored", hint=hint, **where)
    hint = (
        "none of them was committed; if a column has changed its type, run with --refresh-catalog; "
        "else correct the tap or its schema, or raise `rejects.max`"
    )
    return DataError("too many rejects", hint=hint, rejected=rejected, max=limit, **where)
