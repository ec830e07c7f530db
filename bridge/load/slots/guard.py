"""The guard of the replication slot of a run's LOG_BASED streams: guard it, run without a guard, or refuse.

With a guard, each process of the tap reads a copy of the slot. Without one, the tap confirms changes before they are
committed, so a run that does not end cleanly may have lost rows. That is why its streams are noted before the tap
starts; only a clean end removes the note.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import SlotError
from bridge.lake.log import Snapshot
from bridge.lake.runs import Difference
from bridge.lake.storage import Storage
from bridge.load.slots import copies
from bridge.load.slots.binlog import BinlogGuard, binlog_guard
from bridge.load.slots.branch import Server, branch_of, set_back
from bridge.load.slots.copies import NoRights
from bridge.load.slots.database import Database, SlotFacts, opened
from bridge.load.slots.keeper import Keeper, advance, drop
from bridge.load.slots.note import Note, NoteFile, Safe
from bridge.load.slots.positions import bookmark_lsn, started, target
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.slot_source import LONGEST_NAME, SlotSource, slot_source, tap_settings
from bridge.protocol.singer.catalog import Catalog, key_properties, replication_method, selected_streams, stream_entry
from bridge.protocol.singer.state import bookmark, is_flat
from bridge.settings.commands import reload
from bridge.settings.destination import APPEND_ONLY
from bridge.settings.options import Pipeline

_MIN_IDLE_SECONDS = 5
"""If a tap waits less for the next change, its server may still have been reading when it ended."""
_MIN_MELTANO = (0, 10)
"""The first version that reads all streams by one connection and takes their snapshots."""
_MIN_ROOM = 6
"""Letters of its own that tell a copy of the slot from those of other pipelines."""
_MIN_STANDBY = 160000
"""The first version whose standbys decode the log."""
_LIMITS = {"meltanolabs": ("replication_max_run_seconds", 600), "pipelinewise": ("max_run_seconds", 43200)}
"""The setting that ends a tap after so many seconds, whatever there is to read, and its default."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The request to a run. `processes`: the streams of each process of the tap; `part`: others are left out."""

    run: str
    processes: Sequence[Collection[str]]
    full: bool
    part: bool


@dataclass(slots=True)
class SlotGuard:
    """The facts about the slot that a run needs; all of it is empty if there is nothing to guard.

    `settings`: what each process of the tap gets beside the settings of the pipeline. `back`: how many bytes of the log
    a stream starts before its bookmark. `forgotten` streams get a new snapshot. `retained` streams keep their bookmark
    even if the tap drops it. `read_to`: after the end of a run that read all, how far in the log by stream.
    """

    settings: tuple[dict[str, Any], ...] = ()
    back: dict[str, int] = field(default_factory=dict)
    lowered: dict[str, int] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    retained: frozenset[str] = frozenset()
    warnings: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    keeper: Keeper | None = None
    binlog: BinlogGuard | None = None
    unguarded: tuple[NoteFile, Note] | None = None
    read_to: dict[str, int | tuple[str, int]] = field(default_factory=dict)

    def of(self, process: int) -> dict[str, Any]:
        """The settings that one process of the tap gets beside its own."""
        return self.settings[process] if self.settings else {}

    def handed(self, state: Any) -> Any:
        """The STATE for the tap: bookmarks that are not proven are lowered, a complete snapshot is not continued."""
        if not self.lowered or is_flat(state):
            return state
        marks = {
            stream: {**mark, "lsn": min(mark["lsn"], self.lowered[stream]), "xmin": None}
            if stream in self.lowered and bookmark_lsn(mark) is not None
            else mark
            for stream, mark in state["bookmarks"].items()
            if stream not in self.forgotten
        }
        return {**state, "bookmarks": marks}

    def committed(self, snapshot: Snapshot) -> None:
        if self.keeper:
            self.keeper.committed(snapshot)
        if self.binlog:
            self.binlog.snapshot = snapshot

    def close(self, *, ended: bool) -> list[str]:
        """Release what the run had; return warnings. `ended`: the tap ended well and all of it is committed."""
        keeper, self.keeper = self.keeper, None
        unguarded, self.unguarded = self.unguarded, None
        if unguarded and ended:
            file, note = unguarded
            file.write(note)
        binlog, self.binlog = self.binlog, None
        warnings = [*(keeper.close(ended=ended) if keeper else ()), *(binlog.close(ended=ended) if binlog else ())]
        if ended:
            self.read_to |= keeper.read_to if keeper else {}
            self.read_to |= {s: at for s, at in binlog.marks.items() if at} if binlog else {}
        return warnings


def log_based(pipeline: Pipeline, catalog: Catalog | None) -> list[str]:
    """The selected streams that are read from the database's log, by their ids, in order."""
    default = str(tap_settings(pipeline).get("default_replication_method") or "")
    streams = sorted(selected_streams(catalog)) if catalog else []
    return [stream for stream in streams if (replication_method(catalog, stream) or default) == "LOG_BASED"]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of LOG_BASED `streams`: their slot, what was noted about it, and what is committed."""

    pipeline: Pipeline
    source: SlotSource
    file: NoteFile
    snapshot: Snapshot
    catalog: Catalog | None
    streams: list[str]
    asked: Asked

    @property
    def exposed(self) -> tuple[str, ...]:
        """All streams that may have lost rows."""
        return self.file.note.exposed if self.file.note else ()


def check(
    pipeline: Pipeline, argv: Sequence[str], storage: Storage, snapshot: Snapshot, catalog: Catalog | None, asked: Asked
) -> _Run | None:
    """The run of LOG_BASED streams, if it is one. Writes nothing, and asks no database.

    Raises `SlotError` where the run may not start, whatever the database says.
    """
    streams, source = log_based(pipeline, catalog), slot_source(pipeline, argv)
    if source is None or not streams:
        return None
    run = _Run(pipeline, source, NoteFile(storage, pipeline.name), snapshot, catalog, streams, asked)
    if not asked.full and (lossy := [stream for stream in run.exposed if stream in streams]):
        raise SlotError(
            "LOG_BASED streams may have lost rows: a run without the slot guard, or one that was to load them again, "
            "did not end cleanly",
            hint=f"load them again: {reload(pipeline, lossy)}",
            streams=", ".join(lossy),
        )
    if reason := _impossible(pipeline, source):
        _refuse_shared(run, reason)
    return run


def begin(
    pipeline: Pipeline,
    source: SourceDatabase,
    storage: Storage,
    snapshot: Snapshot,
    catalog: Catalog | None,
    asked: Asked,
) -> SlotGuard:
    """Prepare the slot for a run, before its tap starts. Raises `SlotError` if rows would be lost, or are lost."""
    run = check(pipeline, source.argv, storage, snapshot, catalog, asked)
    if run is None:
        streams = log_based(pipeline, catalog)
        binlog = binlog_guard(pipeline, source, storage, snapshot, streams, full=asked.full)
        return SlotGuard(warnings=binlog.begin() if binlog else [], binlog=binlog)
    if reason := _impossible(pipeline, run.source):
        return _unguarded(run, reason)
    database = opened(run.source)
    try:
        return _guarded(run, database)
    except NoRights as error:
        database.close()
        _refuse_shared(run, str(error))
        return _unguarded(run, str(error))
    except BaseException:
        database.close()
        raise


def _impossible(pipeline: Pipeline, source: SlotSource) -> str:
    """Why there can be no guard, whatever the database says; empty if there can be one."""
    if pipeline.source.replication_slot.guard == "off":
        return "source.replication_slot.guard is off"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "the extra `postgres` is not installed (pip install 'singer-bridge[postgres]')"
    if source.kind == "meltanolabs" and source.version != "unknown" and _numbers(source.version) < _MIN_MELTANO:
        return f"it needs meltanolabs-tap-postgres 0.10.0, this is {source.version}"
    if not source.parameters:
        return "the tap's settings do not tell how to connect: set source.replication_slot.url"
    if source.tunnel:
        return "the tap connects through an SSH tunnel: set source.replication_slot.url"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _refuse_shared(run: _Run, reason: str) -> None:
    """Raise `SlotError` for streams that would take rows from each other without a guard."""
    source, streams = run.source, run.streams
    readers = [names for process in run.asked.processes if (names := set(process) & set(streams))]
    one = source.kind != "meltanolabs" or bool(tap_settings(run.pipeline).get("log_based_single_connection"))
    if len(readers) > 1 or (readers and len(readers[0]) > 1 and not one):
        hint = f"the slot guard keeps them apart, but {reason}; without it, run one of the streams only"
        raise SlotError("LOG_BASED streams that share a replication slot lose rows", hint=hint, slot=source.slot)


def _unguarded(run: _Run, reason: str) -> SlotGuard:
    source, streams = run.source, run.streams
    others = tuple(stream for stream in run.exposed if stream not in streams)
    after = Note(source.slot, run.asked.run, False, {}, others)
    run.file.write(replace(after, exposed=(*others, *streams)))
    text = "no slot guard for LOG_BASED streams: if this run does not end cleanly, the next one asks for --full"
    return SlotGuard(warnings=[f"{text}. {reason}"], unguarded=(run.file, after))


def _guarded(run: _Run, database: Database) -> SlotGuard:
    source, streams, asked, file = run.source, run.streams, run.asked, run.file
    prefix, noted = copies.prefix(file.uri, run.pipeline.name), file.note
    old = sorted({*database.names(f"(^|_){prefix}_"), *(copies.own(source, noted.copies) if noted else ())})
    remaining = () if drop(database, old) else tuple(old)
    server = Server.of(branch_of(source), database, _usable(run, database), noted.server if noted else None)
    settings = tap_settings(run.pipeline)
    if asked.full and source.kind == "meltanolabs" and settings.get("auto_bootstrap_log_based") is False:
        hint = "remove auto_bootstrap_log_based from the tap's settings: it is what takes the snapshot"
        raise SlotError("--full would replace tables by what the replication slot still has", hint=hint)
    marks = {stream: bookmark_lsn(bookmark(run.snapshot.state, stream)) for stream in streams}
    again = _incomplete(run)
    starts, lost = _starts(run, marks, server, again)
    others = {s: safe for s, safe in noted.streams.items() if s not in streams} if noted else {}
    lost |= {s for s, safe in others.items() if noted and set_back(s, safe.position, noted.server, server)}
    others = {s: safe for s, safe in others.items() if asked.part and s not in lost}
    settings_of = copies.names(source, asked.run, asked.processes, streams, prefix)
    made = [copy[0] for copy in settings_of if copy]
    exposed = tuple(sorted({*run.exposed, *lost}))
    note = Note(source.slot, asked.run, True, {**others, **starts}, exposed, server, (*remaining, *made))
    if not file.write(note):
        raise SlotError("another run of the pipeline has taken the replication slot", hint="run again")
    advance(database, source.slot, target(note.streams.values()))
    copies.copy(source, database, made)
    guard = SlotGuard(tuple(_settings(source, settings, copy and copy[1]) for copy in settings_of))
    read = zip(settings_of, asked.processes, strict=True)
    names = {s: copy[0] for copy, own in read if copy for s in own if s in streams}
    if source.kind == "meltanolabs":
        low = {copy.name: copy.restart_lsn or 0 for copy in database.slots(sorted(set(names.values())))}
        guard.back = {s: mark - low[names[s]] for s, mark in marks.items() if mark and not asked.full}
    elif source.kind == "pipelinewise":
        guard.lowered, guard.forgotten = {s: safe.position for s, safe in starts.items()}, again
        guard.retained = frozenset(() if asked.full else streams)  # the tap drops it if it has just taken a snapshot
    guard.warnings += _warnings(run, database)
    if noted and noted.server and server.confirmed < noted.server.confirmed and not asked.full:
        text = "the replication slot stands before where the last run left it: the server has crashed, or was restored"
        fix = "if its files were restored, rows may be missing"
        guard.differences += [
            Difference(s, "slot_went_back", f"{text}; {fix}: {reload(run.pipeline, [s])}") for s in starts
        ]
    name, default = _LIMITS.get(source.kind, ("", 0))
    limit = float(settings.get(name) or default)
    guard.keeper = Keeper(source, database, file, note, names, run.snapshot, limit)
    guard.keeper.start()
    return guard


def _warnings(run: _Run, database: Database) -> list[str]:
    warnings = []
    if appended := [stream for stream in run.streams if _is_appended(run.pipeline, run.catalog, stream)]:
        text = "changes that come again after a crash are appended again; load_method: upsert keeps one of each"
        warnings.append(f"{', '.join(appended)}: {text}")
    if not database.sees_readers:
        user = run.source.parameters.get("user", "the role")
        text = "the role may not see how far the server has read, so the slot stays behind and the server keeps its log"
        warnings.append(f"{text}: GRANT pg_read_all_stats TO {user};")
    return warnings


def _is_appended(pipeline: Pipeline, catalog: Catalog | None, stream: str) -> bool:
    """Whether a change that comes twice is in the table twice."""
    setting, entry = pipeline.load_method(stream), stream_entry(catalog, stream)
    keys = pipeline.stream(stream).key_properties or (key_properties(entry) if entry else [])
    return setting == APPEND_ONLY or (setting == "auto" and not keys)


def _starts(
    run: _Run, marks: dict[str, int | None], server: Server, again: frozenset[str]
) -> tuple[dict[str, Safe], set[str]]:
    """From where each stream is safe, and the streams whose changes are lost, which a full run is about to load again.

    Raises a `SlotError` that names all of these if the run is not a full one. A full run that does not end leaves
    their bookmarks as they were, so they are exposed until one ends.
    """
    note = run.file.note
    starts, refused = dict[str, Safe](), dict[str, SlotError]()
    for stream, mark in marks.items():
        snapshot = stream in again or mark is None
        try:
            starts[stream] = started(stream, mark, server.confirmed, note, snapshot=snapshot)
            noted = note.streams.get(stream) if note and note.guarded and not snapshot else None
            position = max(mark or 0, noted.position if noted else 0)
            if not snapshot and (error := set_back(stream, position, note.server if note else None, server)):
                raise error
        except SlotError as refusal:
            refused[stream] = refusal
    if run.asked.full:
        return {stream: Safe(server.confirmed, None) for stream in marks}, set(refused)
    if refused:
        first = next(iter(refused.values()))
        first.hint = f"changes between the two can no longer be read; load again: {reload(run.pipeline, list(refused))}"
        raise first
    return starts, set()


def _incomplete(run: _Run) -> frozenset[str]:
    """The streams that need a new snapshot: the run that began the last one did not end well.

    pipelinewise-tap-postgres sends the bookmark that ends the snapshot before the snapshot's first row. It continues a
    half snapshot in the order of `xmin` as text, which leaves rows out.
    """
    note = run.file.note
    noted = note.streams if note and note.guarded and run.source.kind == "pipelinewise" else {}
    return frozenset(stream for stream in run.streams if stream in noted and noted[stream].bookmark is None)


def _usable(run: _Run, database: Database) -> SlotFacts:
    """The original slot. Raises `SlotError` unless its changes can be read."""
    source, note, name = run.source, run.file.note, run.pipeline.name
    if not database.copies_slots:
        raise NoRights(f"it needs PostgreSQL 12, this is {database.version // 10000}")
    if (shared := source.shared_slot) and database.slot(shared):
        new = source.slot if source.slot != shared else source.named(name)[0]
        copy = f"select pg_copy_logical_replication_slot('{shared}', '{new}');"
        then = f"select pg_drop_replication_slot('{shared}'); and set tap_id: {new.removeprefix(shared)[1:]}"
        hint = f"give the pipeline a slot of its own: {copy} {then} for the tap"
        raise SlotError("the tap reads a slot named without tap_id before any other", hint=hint, slot=shared)
    if len(source.slot) > LONGEST_NAME or source.room < _MIN_ROOM:
        hint = "shorten tap_id; or use meltanolabs-tap-postgres, whose slots are not named for the database"
        raise SlotError(f"a slot's name has {LONGEST_NAME} letters, the tap's are longer", hint=hint, slot=source.slot)
    facts = database.slot(source.slot)
    create = f"select pg_create_logical_replication_slot('{source.slot}', 'wal2json');"
    if standby := facts is None and database.in_recovery:
        create += " (on a standby, it ends after select pg_log_standby_snapshot(); on the primary)"
    if standby and database.version < _MIN_STANDBY:
        hint = "let the tap read from the primary, or from a standby of PostgreSQL 16"
        raise SlotError("a standby of this version of PostgreSQL has no logical replication slots", hint=hint)
    if facts is None:
        again = (
            f" then {reload(run.pipeline, run.streams)}, as changes were lost with it" if note and note.streams else ""
        )
        raise SlotError("the replication slot does not exist", hint=f"create it: {create}{again}", slot=source.slot)
    if facts.lost:
        hint = f"select pg_drop_replication_slot('{source.slot}'); {create} then {reload(run.pipeline, run.streams)}"
        raise SlotError("the server has removed log that the replication slot needs", hint=hint, slot=source.slot)
    return facts


def _settings(source: SlotSource, settings: dict[str, Any], copy: str | None) -> dict[str, Any]:
    """The settings that one process of the tap gets beside its own."""
    if copy is None:
        return {}
    extra: dict[str, Any] = {source.setting: copy}
    if source.kind == "meltanolabs":
        idle = settings.get("replication_idle_exit_seconds")
        extra |= {"log_based_single_connection": True}
        extra |= {"auto_bootstrap_log_based": settings.get("auto_bootstrap_log_based", True)}
        if isinstance(idle, int) and idle < _MIN_IDLE_SECONDS:
            extra |= {"replication_idle_exit_seconds": _MIN_IDLE_SECONDS}
    return extra
