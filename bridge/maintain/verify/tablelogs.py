"""A table's own log against ours: that readers of either have the same files, and find the rows."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import BridgeError
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.maintain.verify.finding import Finding, Mend, error


def own_log(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    """Look at the log of a table that has one."""
    if not table.has_own_log:
        return
    key, mend = table.folder, Mend("table log", stream)
    try:
        own = TableLogs(log).of(table.folder, stream, table.format)
        key, there = own.key, own.look()
        misleading = own.misleading()
    except BridgeError as problem:
        yield error("table log", key, problem.message, problem.hint)
        return
    if there.version < 0:
        if table.schema is not None:
            yield error("table log", key, f"is not there: who reads the {own.kind} table finds none", mend=mend)
        return
    more, less = there.files - table.files.keys(), table.files.keys() - there.files
    if more or less:
        parts = [f"{len(names):,} file(s) {what}" for names, what in ((more, "too many"), (less, "too few")) if names]
        yield error("table log", key, f"names {' and '.join(parts)}: its readers get other rows", mend=mend)
    elif misleading:
        found = f"has statistics of {len(misleading):,} file(s) by which some readers leave out rows"
        yield error("table log", key, f"{found} that a filter asks for", mend=mend)
