"""What is derived from the log, for people and for readers: manifests, `state.json`, streams, owners, staged files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.commit.manifests import listed_files, manifest_body, manifest_keys
from bridge.commit.state_file import expect_object, read_state_file, state_key, was_said
from bridge.errors import BridgeError, CorruptLake
from bridge.exact_json import NotJson, loads
from bridge.lake.folder_names import generation_of, last_name, table_and_name
from bridge.lake.log import Log, View, add_of, bookmarks, meta
from bridge.lake.ownership import Owner, owners_of
from bridge.lake.records import FORMAT, FileAdd, PendingFile, TableState
from bridge.maintain.verify.finding import Finding, Mend, error, warning
from bridge.maintain.verify.history import History
from bridge.maintain.verify.tablelogs import own_log
from bridge.singer.state_edits import same

_BACKUP = "restore it from a backup of the bucket"


def lake(log: Log) -> Iterator[Finding]:
    """Look at the file that says that the bucket is a lake."""
    key = ".bridge/lake.json"
    said = _json(log, key)
    if said is None:
        yield warning("lake", key, "is not there", mend=Mend("recover"))
    elif not isinstance(said, dict) or not isinstance(said.get("format"), int):
        yield error("lake", key, "is unreadable: it says that this bucket is a lake, and in which format", _BACKUP)
    elif said["format"] > FORMAT:
        yield error("lake", key, "is of a newer format", "upgrade singer-bridge: a newer version wrote this bucket")


def derived(history: History, view: View, *, unfinished: bool, running: bool) -> Iterator[Finding]:
    """Look at all that follows from `view`; not at what a `running` run is about to write.

    `unfinished`: the last run has not, or not yet, ended in good order.
    """
    log = history.log
    changing = {change.stream for change in history.last.tables} if running and history.last else set()
    for stream, table in sorted(view.tables.items()):
        yield from _owner(log, stream, table)
        if stream not in changing:
            yield from _manifests(log, stream, table)
            yield from own_log(log, stream, table)
        yield from _schema(log, table)
        if not running:
            yield from _stream(log, view, stream, table)
    yield from _state(log, view, unfinished=unfinished, running=running)
    if not running:
        yield from _staged(log, view)
        yield from _pending(history, view, view.n + 1 if unfinished else view.n)


def _json(log: Log, key: str) -> Any:
    """Return what a JSON file says, None if there is none, and the text "" if it is none."""
    data = log.storage.read(key)
    try:
        return None if data is None else loads(data)
    except NotJson:
        return ""


def _owner(log: Log, stream: str, table: TableState) -> Iterator[Finding]:
    key, me = f".bridge/tables/{table.folder}.json", Owner(log.pipeline, stream)
    try:
        owners, shared = owners_of(log.storage, table.folder)
    except CorruptLake as problem:
        yield error("owner", key, problem.message, problem.hint)
        return
    if not owners:
        found = "is not there: another pipeline could take the table for its own"
        yield error("owner", key, found, mend=Mend("owner", stream))
    elif me not in owners or (len(owners) > 1 and not shared):
        fix = "one of the two needs another destination.path; then correct the file, which says whose the table is"
        yield error("owner", key, f"says that the table is {owners[0].pipeline}'s, and our log has it too", fix)


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
            found = f"lists the files below {place}, where the run that wrote it had the bucket, and not below"
            yield warning("manifest", key, f"{found} {log.storage.uri}", mend=mend)
        else:
            found = "is not there" if data is None else "does not list the table's files"
            yield error("manifest", key, f"{found}: who reads by it gets other rows", mend=mend)


def _schema(log: Log, table: TableState) -> Iterator[Finding]:
    if table.schema is None:
        return
    key = meta(log.pipeline, "schemas", f"{table.schema}.json")
    said = _json(log, key)
    if not isinstance(said, dict) or "columns" not in said:
        found = "is not there" if said is None else "is unreadable"
        yield error(
            "schema", key, f"{found}: it has the columns of {table.folder}, and no run loads it without", _BACKUP
        )


def _stream(log: Log, view: View, stream: str, table: TableState) -> Iterator[Finding]:
    key = meta(log.pipeline, "streams", f"{table.folder.rsplit('/', 1)[-1]}.json")
    said = _json(log, key)
    wanted = {"bookmark": bookmarks(view.state).get(stream), "rows": table.rows, "files": len(table.files)}
    if said is None:
        yield warning("streams", key, "is not there; nothing of ours reads it", mend=Mend("stream", stream))
        return
    wrong = [name for name in wanted if not isinstance(said, dict) or not same(said.get(name), wanted[name])]
    if wrong:
        found = f"has another {' and '.join(wrong)} than the log; nothing of ours reads it"
        yield warning("streams", key, found, mend=Mend("stream", stream))


def _state(log: Log, view: View, *, unfinished: bool, running: bool) -> Iterator[Finding]:
    key = state_key(log.pipeline)
    try:
        there = read_state_file(log.storage, log.pipeline)
        if there is not None:
            expect_object(log.storage, log.pipeline, there)
    except CorruptLake as problem:
        yield error("state", key, f"{problem.message}; no run starts", mend=Mend("state", source=f"{key}.damaged"))
        return
    if there == view.state:
        return
    if there is None or was_said(log, view.n, there):
        if running:
            return
        behind = "is not there" if there is None else "has an older STATE than the log"
        if there is None:
            yield warning("state", key, f"{behind}; the next run writes it", mend=Mend("recover"))
        elif unfinished:
            yield warning("state", key, f"{behind}: the last run died before it was written", mend=Mend("state"))
        else:
            found = f"{behind}: no run starts, as it would load rows twice"
            yield error("state", key, found, mend=Mend("state"))
    else:
        fix = "nothing, if that was meant; `singer-bridge state get` shows it"
        yield warning("state", key, "was edited by hand: the next run starts from it", fix)


def _staged(log: Log, view: View) -> Iterator[Finding]:
    for stream, stage in sorted(view.staged.items()):
        for lost in log.storage.missing_pending([add_of("", file) for file in stage.files]):
            found = f"is gone; it is of {stream}, which is half loaded: the next run starts that table again"
            yield warning("staged", lost.source, found, mend=Mend("recover"))


def _pending(history: History, view: View, generation: int) -> Iterator[Finding]:
    """Look for what can become visible no more, of generations below that of the next run.

    Best effort: some backends list what is pending, some do not.
    """
    log = history.log
    files: list[FileAdd | PendingFile] = [file for stage in view.staged.values() for file in stage.files]
    files += [add for change in (history.last.tables if history.last else ()) for add in change.adds]
    kept = {last_name(place) for file in files for place in (file.name, file.source)}
    folders = {table.folder for table in view.tables.values()}
    for pending in log.storage.pending(meta(log.pipeline, "pending")):
        key = pending.key or pending.source
        wrote, table = generation_of(key), table_and_name(key)[0]
        if wrote is None or wrote >= generation or last_name(key) in kept:
            continue
        if not pending.upload or table in folders:
            found = "was left by a run that died, and can become visible no more; it takes up space"
            yield warning("pending", key, found, mend=Mend("recover"))
