"""Records of the commit log, as tests write them by hand: what a test does not care about has a default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import convert

from bridge.lake.file_records import PendingFile
from bridge.lake.records import CommitRecord, StagedTable, TableChange

AT = "2026-01-01T00:00:00+00:00"


def commit_record(n: int, *tables: TableChange, kind: str = "data", **fields: Any) -> CommitRecord:
    """Commit `n`, whose STATE says its number."""
    facts: dict[str, Any] = {"run": "run", "generation": 0, "nonce": str(n), "at": AT, "state": {"n": n}} | fields
    return CommitRecord(n=n, kind=kind, tables=list(tables), **facts)


def table_change(
    adds: Sequence[dict[str, Any]] = (), removes: Sequence[str] = (), stream: str = "s", **fields: Any
) -> TableChange:
    """What a commit does to a table of the pipeline `p`; `adds` are as in the record."""
    facts = {"stream": stream, "folder": f"p/{stream}", "schema": "c", "mode": "append"} | fields
    return convert(facts | {"adds": list(adds), "removes": list(removes)}, TableChange)


def pending_file(file: dict[str, Any], stream: str = "s") -> PendingFile:
    """A file as a worker reports it."""
    return convert({"stream": stream, "extra": False, "columns": ""} | file, PendingFile)


def staged_table(version: int, *files: dict[str, Any], stream: str = "s", **fields: Any) -> StagedTable:
    """A table that is half loaded."""
    facts: dict[str, Any] = {"schema": "c", "folder": f"p/{stream}"} | fields
    return StagedTable(version=version, files=[pending_file(file, stream) for file in files], **facts)
