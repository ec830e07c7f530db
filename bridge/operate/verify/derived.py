"""Checks of what follows from the log: manifests, `state.json`, streams, owners, staged files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.errors import BridgeError, CorruptLake
from bridge.exact_json import NotJson, loads
from bridge.findings import Finding, Mend
from bridge.lake.commit.manifests import listed_files, manifest_body, manifest_keys
from bridge.lake.commit.state_file import read_state_file, state_key
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, Snapshot, add_of
from bridge.lake.ownership import Owner, owners_of
from bridge.lake.paths import last_name, pipeline_key, table_and_name
from bridge.lake.presence import stale_pending
from bridge.lake.records import FORMAT, TableState
from bridge.lake.stream_files import stream_file, wrong_facts
from bridge.operate.verify.history import History
from bridge.operate.verify.report import error, warning

_BACKUP = "restore it from a backup of the bucket"


def lake(log: Log) -> Iterator[Finding]:
    """Check the file that makes the bucket a lake."""
    key = ".bridge/lake.json"
    content = _json(log, key)
    if content is None:
        yield warning("lake", key, "is missing", mend=Mend("recover"))
    elif not isinstance(content, dict) or not isinstance(content.get("format"), int):
        yield error("lake", key, "is unreadable: it says that this bucket is a lake, and in which format", _BACKUP)
    elif content["format"] > FORMAT:
        yield error("lake", key, "is of a newer format", "upgrade singer-bridge: a newer version wrote this bucket")


def derived(history: History, snapshot: Snapshot, *, unfinished: bool, running: bool) -> Iterator[Finding]:
    """Check all that follows from `snapshot`; not what a `running` run is about to write.

    `unfinished`: the last run has not ended in good order, or not yet.
    """
    log = history.log
    changing = {change.stream for change in history.last.tables} if running and history.last else set()
    for stream, table in sorted(snapshot.tables.items()):
        yield from _owner(log, stream, table)
        if stream not in changing:
            yield from _manifests(log, stream, table)
            yield from _own_log(log, stream, table)
        yield from _schema(log, table)
        if not running and not table.is_of_view:
            yield from _stream(log, snapshot, stream, table)
    yield from _state(log, snapshot, unfinished=unfinished, running=running)
    if not running:
        yield from _staged(log, snapshot)
        yield from _pending(history, snapshot, snapshot.n + 1 if unfinished else snapshot.n)


def _json(log: Log, key: str) -> Any:
    """The content of a JSON file, None if there is no file, and the text "" if it is not JSON."""
    data = log.storage.read(key)
    try:
        return None if data is None else loads(data)
    except NotJson:
        return ""


def _owner(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    key, me = f".bridge/tables/{table.folder}.json", Owner(log.pipeline, stream)
    try:
        owners, shared = owners_of(log.storage, table.folder)
    except CorruptLake as failure:
        yield error("owner", key, failure.message, failure.hint)
        return
    if not owners:
        problem = "is missing: another pipeline could take the table for its own"
        yield error("owner", key, problem, mend=Mend("owner", stream))
    elif me not in owners or (len(owners) > 1 and not shared):
        fix = "one of the two needs another destination.path; then correct the file, which says whose the table is"
        yield error("owner", key, f"says that the table is {owners[0].pipeline}'s, but our log has it too", fix)


def _manifests(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    try:
        shared = owners_of(log.storage, table.folder)[1]
        names = listed_files(log.storage, Owner(log.pipeline, stream), table, shared=shared)
    except BridgeError:
        return  # whose the table is, is a finding of its own
    for key in manifest_keys(table.folder):
        data = log.storage.read(key)
        if data == manifest_body(log.storage, table.folder, names):
            continue
        below = f"/{table.folder}/".encode()
        listed = [line.rpartition(below)[2] for line in (data or b"").splitlines()]
        mend = Mend("manifest", stream)
        if data is not None and listed == [name.encode() for name in names]:
            place = data.splitlines()[0].decode(errors="replace").rpartition(f"/{table.folder}/")[0]
            problem = f"lists the files below {place}, where the bucket was when it was written, not below"
            yield warning("manifest", key, f"{problem} {log.storage.uri}", mend=mend)
        else:
            problem = "is missing" if data is None else "does not list the table's files"
            yield error("manifest", key, f"{problem}: its readers get other rows", mend=mend)


def _own_log(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    """Check a table's own log against ours: only if they agree do readers of either see the same files and rows."""
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


def _schema(log: Log, table: TableState) -> Iterator[Finding]:
    if table.schema is None:
        return
    key = pipeline_key(log.pipeline, "schemas", f"{table.schema}.json")
    content = _json(log, key)
    if not isinstance(content, dict) or "columns" not in content:
        problem = "is missing" if content is None else "is unreadable"
        problem += f": it has the columns of {table.folder}, and no run loads that table without it"
        yield error("schema", key, problem, _BACKUP)


def _stream(log: Log, snapshot: Snapshot, stream: str, table: TableState) -> Iterator[Finding]:
    key = stream_file(log.pipeline, table)
    content = _json(log, key)
    if content is None:
        yield warning("streams", key, "is missing; no run reads it", mend=Mend("stream", stream))
    elif wrong := wrong_facts(content if isinstance(content, dict) else {}, snapshot, stream):
        problem = f"has another {' and '.join(wrong)} than the log; no run reads it"
        yield warning("streams", key, problem, mend=Mend("stream", stream))


def _state(log: Log, snapshot: Snapshot, *, unfinished: bool, running: bool) -> Iterator[Finding]:
    key, file = state_key(log.pipeline), read_state_file(log.storage, log.pipeline)
    try:
        comparison = file.compare(log, snapshot.n, snapshot.state, died=unfinished)
        if comparison == "edited":
            file.edited(log.storage, log.pipeline)
    except CorruptLake as problem:
        yield error("state", key, f"{problem.message}; no run starts", mend=Mend("state", source=f"{key}.damaged"))
        return
    if comparison == "edited":
        fix = "nothing, if that was meant; `singer-bridge state get` shows it"
        yield warning("state", key, "was edited by hand: the next run starts from it", fix)
    elif comparison == "behind" and not running:
        yield warning("state", key, "has an older STATE than the log; the next run writes it", mend=Mend("recover"))
    elif comparison == "absent" and snapshot.state is not None and not running:
        yield warning("state", key, "is not there; the next run writes it", mend=Mend("recover"))


def _staged(log: Log, snapshot: Snapshot) -> Iterator[Finding]:
    for stream, stage in sorted(snapshot.staged.items()):
        for lost in log.storage.missing_pending([add_of("", file) for file in stage.files]):
            problem = f"is missing; it is part of {stream}, which is half loaded: the next run starts that table again"
            yield warning("staged", lost.source, problem, mend=Mend("recover"))


def _pending(history: History, snapshot: Snapshot, generation: int) -> Iterator[Finding]:
    """Find files that can no longer become visible, of generations below that of the next run."""
    adds = [add for change in (history.last.tables if history.last else ()) for add in change.adds]
    last = {last_name(place) for add in adds for place in (add.name, add.source)}
    folders = {table.folder for table in snapshot.tables.values()}
    for pending, key in stale_pending(history.log, snapshot, generation):
        own = not pending.upload or table_and_name(key)[0] in folders
        if own and last_name(key) not in last:
            problem = "was left by a run that died, and can no longer become visible; it takes up space"
            yield warning("pending", pending.key or pending.source, problem, mend=Mend("recover"))
