"""Does a table's own log agree with ours? Only then do readers of either see the same files and rows."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import BridgeError
from bridge.findings import Finding, Mend
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.operate.verify.report import error


def own_log(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    """Check the log of a table that has one."""
    if not table.has_own_log:
        return
    key, mend = table.folder, Mend("table log", stream)
    try:
        own = TableLogs(log).of(table.folder, stream, table.format)
        key, existing = own.key, own.look()
        misleading = own.misleading()
    except BridgeError as failure:
        yield error("table log", key, failure.message, failure.hint)
        return
    if existing.version < 0:
        if table.schema is not None:
            yield error("table log", key, f"is missing: readers of the {own.kind} table find none", mend=mend)
        return
    more, less = existing.files - table.files.keys(), table.files.keys() - existing.files
    if more or less:
        parts = [f"{len(names):,} file(s) {what}" for names, what in ((more, "too many"), (less, "too few")) if names]
        yield error("table log", key, f"names {' and '.join(parts)}: its readers get other rows", mend=mend)
    elif misleading:
        problem = f"has statistics of {len(misleading):,} file(s) by which some readers leave out rows"
        yield error("table log", key, f"{problem} that a filter asks for", mend=mend)
