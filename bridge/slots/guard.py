"""What a run does about the replication slot of its LOG_BASED streams: guard it, go without, or refuse.

Guarded, each process of the tap reads a copy. Unguarded, the tap confirms what nobody has committed: a run that does
not end cleanly has lost rows, so the streams that it reads are put on record before the tap starts, and only its clean
end takes them out again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import DatabaseUnreachable, SlotError
from bridge.lake.log import View
from bridge.settings.options import Pipeline
from bridge.singer.catalog import Catalog, key_properties, replication_method, selected_streams, stream_entry
from bridge.singer.state import bookmark, is_flat
from bridge.slots.database import Database, SlotFacts, opened
from bridge.slots.keeper import Keeper, advance, drop
from bridge.slots.note import Note, NoteFile, Safe
from bridge.slots.positions import bookmark_lsn, started, target
from bridge.storage import Storage
from bridge.tap.slot_source import SlotSource, slot_source, tap_settings

_MIN_IDLE_SECONDS = 5
"""A tap that waits less for the next change cannot be told from one whose server was still reading."""
_MIN_MELTANO = (0, 10)
"""The first version that reads all streams by one connection and takes their snapshots."""
_LIMITS = {"meltanolabs": ("replication_max_run_seconds", 600), "pipelinewise": ("max_run_seconds", 43200)}
"""The setting by which a tap ends after so many seconds, whatever there is to read, and what it is by itself."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is about. `processes` are the streams of each process of the tap; `part`: others are left out."""

    run: str
    processes: Sequence[Collection[str]]
    full: bool
    part: bool


@dataclass(slots=True)
class SlotGuard:
    """What a run has to know of the slot; without anything to guard all of it is empty.

    `settings` are the tap's, beside those of the pipeline, for each process. `back` says how much earlier than its
    bookmark a stream starts, in bytes of the log. `forgotten` are streams whose snapshot is taken again, `kept` those
    whose bookmark stays where the tap forgets it.
    """

    settings: tuple[dict[str, Any], ...] = ()
    back: dict[str, int] = field(default_factory=dict)
    lowered: dict[str, int] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    warnings: list[str] = field(default_factory=list)
    keeper: Keeper | None = None
    unguarded: tuple[NoteFile, Note] | None = None

    def of(self, process: int) -> dict[str, Any]:
        """Return the settings that one process of the tap gets beside its own."""
        return self.settings[process] if self.settings else {}

    def handed(self, state: Any) -> Any:
        """Return the STATE for the tap: what is not proven is lowered, a snapshot that is whole not gone on with."""
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

    def committed(self, view: View) -> None:
        """Note a commit."""
        if self.keeper:
            self.keeper.committed(view)

    def close(self, *, ended: bool) -> list[str]:
        """Let go of what the run had; return warnings. `ended`: the tap ended well and all of it is committed."""
        keeper, self.keeper = self.keeper, None
        unguarded, self.unguarded = self.unguarded, None
        if unguarded and ended:
            file, note = unguarded
            file.write(note)
        return keeper.close(ended=ended) if keeper else []


def log_based(pipeline: Pipeline, catalog: Catalog | None) -> list[str]:
    """Return the selected streams that are read from the database's log, by their ids, in order."""
    default = str(tap_settings(pipeline).get("default_replication_method") or "")
    streams = sorted(selected_streams(catalog)) if catalog else []
    return [stream for stream in streams if (replication_method(catalog, stream) or default) == "LOG_BASED"]


def begin(
    pipeline: Pipeline, argv: Sequence[str], storage: Storage, view: View, catalog: Catalog | None, asked: Asked
) -> SlotGuard:
    """Prepare the slot for a run, before its tap starts. Raises `SlotError` where rows would be lost, or were."""
    streams, source = log_based(pipeline, catalog), slot_source(pipeline, argv)
    if source is None:
        return SlotGuard()
    file = NoteFile(storage, pipeline.name)
    if not streams:
        return SlotGuard()
    known = file.note.exposed if file.note else ()
    if not asked.full and (lossy := [stream for stream in known if stream in streams]):
        raise SlotError(
            "LOG_BASED streams may have lost rows: a run without the slot guard did not end cleanly",
            hint=f"load them anew: singer-bridge run {pipeline.name} --full {_flags(lossy)}",
            streams=", ".join(lossy),
        )
    if reason := _impossible(pipeline, source):
        return _unguarded(pipeline, source, file, streams, asked, reason)
    database = opened(source)
    try:
        return _guarded(pipeline, source, database, file, view, catalog, streams, asked)
    except _NoRights as error:
        database.close()
        return _unguarded(pipeline, source, file, streams, asked, str(error))
    except BaseException:
        database.close()
        raise


class _NoRights(Exception):
    """The database does not let us copy slots."""


def _impossible(pipeline: Pipeline, source: SlotSource) -> str:
    """Return why there can be no guard whatever the database says; nothing where there can be one."""
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


def _unguarded(
    pipeline: Pipeline, source: SlotSource, file: NoteFile, streams: list[str], asked: Asked, reason: str
) -> SlotGuard:
    readers = [sorted(set(process) & set(streams)) for process in asked.processes]
    several = [names for names in readers if names]
    one = source.kind != "meltanolabs" or bool(tap_settings(pipeline).get("log_based_single_connection"))
    if len(several) > 1 or (several and len(several[0]) > 1 and not one):
        hint = f"the slot guard keeps them apart, but {reason}; without it, run one of the streams only"
        raise SlotError("LOG_BASED streams that share a replication slot lose rows", hint=hint, slot=source.slot)
    stay = tuple(s for s in (file.note.exposed if file.note else ()) if s not in streams)
    after = Note(source.slot, asked.run, False, {}, stay)
    file.write(replace(after, exposed=(*stay, *streams)))
    text = "no slot guard for LOG_BASED streams: if this run does not end cleanly, the next one asks for --full"
    return SlotGuard(warnings=[f"{text}. {reason}"], unguarded=(file, after))


def _guarded(
    pipeline: Pipeline,
    source: SlotSource,
    database: Database,
    file: NoteFile,
    view: View,
    catalog: Catalog | None,
    streams: list[str],
    asked: Asked,
) -> SlotGuard:
    prefix = _prefix(file, pipeline)
    drop(database, database.names(f"(^|_){prefix}_"))
    facts = _usable(pipeline, source, database, file.note)
    settings = tap_settings(pipeline)
    if asked.full and source.kind == "meltanolabs" and settings.get("auto_bootstrap_log_based") is False:
        hint = "remove auto_bootstrap_log_based from the tap's settings: it is what takes the snapshot"
        raise SlotError("--full would replace tables by what the replication slot still has", hint=hint)
    confirmed = facts.confirmed_lsn or 0
    marks = {stream: bookmark_lsn(bookmark(view.state, stream)) for stream in streams}
    again = _half(source, file.note, streams)
    anew = frozenset(streams) if asked.full else again
    starts = _starts(pipeline, marks, confirmed, file.note, anew)
    others = {s: one for s, one in file.note.streams.items() if s not in streams} if asked.part and file.note else {}
    note = Note(source.slot, asked.run, True, {**others, **starts}, file.note.exposed if file.note else ())
    if not file.write(note):
        raise SlotError("another run of the pipeline has taken the replication slot", hint="run again")
    advance(database, source.slot, target(note.streams.values()))
    copies = _copies(source, database, prefix, streams, asked)
    appended = [stream for stream in streams if _is_appended(pipeline, catalog, stream)]
    guard = SlotGuard(tuple(_settings(source, settings, copy and copy[1]) for copy in copies))
    names = {s: copy[0] for copy, own in zip(copies, asked.processes, strict=True) if copy for s in own if s in streams}
    if source.kind == "meltanolabs":
        low = {copy.name: copy.restart_lsn or 0 for copy in database.slots(sorted(set(names.values())))}
        guard.back = {s: mark - low[names[s]] for s, mark in marks.items() if mark and not asked.full}
    elif source.kind == "pipelinewise":
        guard.lowered, guard.forgotten = {s: safe.position for s, safe in starts.items()}, again
        guard.kept = frozenset(() if asked.full else streams)  # it drops those that it has just taken a snapshot of
    if appended:
        text = "changes that come again after a crash are appended again; load_method: upsert keeps one of each"
        guard.warnings.append(f"{', '.join(appended)}: {text}")
    if not database.sees_readers:
        user = source.parameters.get("user", "the role")
        text = "the role may not see how far the server has read, so the slot stays behind and the server keeps its log"
        guard.warnings.append(f"{text}: GRANT pg_read_all_stats TO {user};")
    name, usual = _LIMITS.get(source.kind, ("", 0))
    limit = float(settings.get(name) or usual)
    guard.keeper = Keeper(source, database, file, note, names, view, limit)
    guard.keeper.start()
    return guard


def _is_appended(pipeline: Pipeline, catalog: Catalog | None, stream: str) -> bool:
    """Return whether a change that comes twice is in the table twice."""
    setting, entry = pipeline.load_method(stream), stream_entry(catalog, stream)
    keys = pipeline.stream(stream).key_properties or (key_properties(entry) if entry else [])
    return setting == "append-only" or (setting == "auto" and not keys)


def _starts(
    pipeline: Pipeline, marks: dict[str, int | None], confirmed: int, note: Note | None, anew: frozenset[str]
) -> dict[str, Safe]:
    """Return from where each stream is safe. Raises `SlotError` that names all whose changes are lost."""
    starts, refused = dict[str, Safe](), dict[str, SlotError]()
    for stream, mark in marks.items():
        try:
            starts[stream] = started(stream, mark, confirmed, note, anew=stream in anew)
        except SlotError as error:
            refused[stream] = error
    if refused:
        again, first = f"singer-bridge run {pipeline.name} --full {_flags(list(refused))}", next(iter(refused.values()))
        first.hint = f"changes between the two cannot be read any more; load anew: {again}"
        raise first
    return starts


def _half(source: SlotSource, note: Note | None, streams: list[str]) -> frozenset[str]:
    """Return the streams whose snapshot is taken again: the run that began it did not end well.

    pipelinewise-tap-postgres says the bookmark that ends the snapshot before its first row, and goes on with a half
    one in the order of `xmin` as text, which leaves rows out.
    """
    known = note.streams if note and note.guarded and source.kind == "pipelinewise" else {}
    return frozenset(stream for stream in streams if stream in known and known[stream].bookmark is None)


def _usable(pipeline: Pipeline, source: SlotSource, database: Database, note: Note | None) -> SlotFacts:
    """Return the original as it is. Raises `SlotError` unless its changes can be read."""
    if not database.copies_slots:
        raise _NoRights(f"it needs PostgreSQL 12, this is {database.version // 10000}")
    if (shared := source.shared_slot) and database.slot(shared):
        new = source.slot if source.slot != shared else source.named(pipeline.name)[0]
        copy = f"select pg_copy_logical_replication_slot('{shared}', '{new}');"
        then = (
            f"select pg_drop_replication_slot('{shared}'); and set tap_id: {new.removeprefix(shared)[1:]} for the tap"
        )
        hint = f"give the pipeline a slot of its own: {copy} {then}"
        raise SlotError("the tap reads a slot named without tap_id before any other", hint=hint, slot=shared)
    facts = database.slot(source.slot)
    again = (
        f" then singer-bridge run {pipeline.name} --full, as changes were lost with it" if note and note.streams else ""
    )
    create = f"select pg_create_logical_replication_slot('{source.slot}', 'wal2json');"
    if facts is None:
        raise SlotError("the replication slot does not exist", hint=f"create it: {create}{again}", slot=source.slot)
    if facts.lost:
        hint = (
            f"select pg_drop_replication_slot('{source.slot}'); {create} then singer-bridge run {pipeline.name} --full"
        )
        raise SlotError("the server has removed log that the replication slot needs", hint=hint, slot=source.slot)
    return facts


def _copies(
    source: SlotSource, database: Database, prefix: str, streams: list[str], asked: Asked
) -> list[tuple[str, str] | None]:
    """Make a copy for each process with LOG_BASED streams; return its name and the setting for it."""
    run, made = hashlib.sha256(asked.run.encode()).hexdigest()[:6], list[tuple[str, str] | None]()
    try:
        for number, own in enumerate(asked.processes):
            made.append(source.named(f"{prefix}_{run}_{number}") if not set(own).isdisjoint(streams) else None)
            if copy := made[-1]:
                database.copy(source.slot, copy[0])
    except SlotError as error:
        if isinstance(error, DatabaseUnreachable):
            raise
        drop(database, [copy[0] for copy in made if copy])
        if type(error.__cause__).__name__ == "InsufficientPrivilege":
            raise _NoRights(f"the database refuses it: {error.message}") from error
        hint = "raise max_replication_slots, or lower source.parallelism; or set source.replication_slot.guard to off"
        raise SlotError(f"the replication slot cannot be copied: {error.message}", hint=hint) from error
    return made


def _settings(source: SlotSource, settings: dict[str, Any], copy: str | None) -> dict[str, Any]:
    """Return what one process of the tap is told beside its own settings."""
    if copy is None:
        return {}
    told: dict[str, Any] = {source.setting: copy}
    if source.kind == "meltanolabs":
        idle = settings.get("replication_idle_exit_seconds")
        told |= {"log_based_single_connection": True}
        told |= {"auto_bootstrap_log_based": settings.get("auto_bootstrap_log_based", True)}
        if isinstance(idle, int) and idle < _MIN_IDLE_SECONDS:
            told |= {"replication_idle_exit_seconds": _MIN_IDLE_SECONDS}
    return told


def _prefix(file: NoteFile, pipeline: Pipeline) -> str:
    """Return how the names of this pipeline's copies begin, and those of no other."""
    return f"bridge_{hashlib.sha256(f'{file.uri} {pipeline.name}'.encode()).hexdigest()[:10]}"


def _flags(streams: Sequence[str]) -> str:
    return " ".join(f"-s {stream}" for stream in streams)
