"""The commit protocol. Every step can be repeated; a crash between any two is repaired by the next run's step 1.

0. Hold the lease (a courtesy). Read the head. Unless the last run closed cleanly, create an empty *fence* commit.
   Whoever was slow now loses any number it tries. The head is then this run's generation and part of every file name.
1. Roll the last data commit forward; if one of its files is neither pending nor visible, take it back by a *void*
   commit, legal because nobody has seen its STATE yet. Then compare `state.json`, abort pending files of lower
   generations, and only then let the tap start, from the head's STATE.
2. At a barrier: every pending file is verified to be there, whole, and a table with a log of its own to be as we left
   it.
3. `commits/<head + 1>.json` by put-if-absent: the commit point, and the fence. A loser ends; it never takes the next
   number. An unknown outcome is settled by reading back the nonce, and nothing is aborted for it. A number is never
   free again: one below the log's beginning, whose record the retention deleted, is lost as well.
4. `publish` the files, then the tables' own logs, where they have one, and their manifests. 5. `state.json`.
6. Report. 7. The spool lets go of the segments. 8. Close: the lease notes the head, so that the next run needs no
   fence.

`n + 1` is created only after `n` is published: recovery never looks further back than the last data commit. Manifests
and `state.json` are swapped by their version, so a writer that slept through its own replacement changes none of them;
or undoes it at once, where a table's files, and so the bytes of its manifest, are again what they were before.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from bridge.commit.cleanup import abort_older
from bridge.errors import CommitLost, CommitUnknown, CorruptLake, EngineError, LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.folder_names import file_name, table_and_name
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, View, add_of, changes_of, inverse, meta
from bridge.lake.ownership import Owner, owners_of, tables_of
from bridge.lake.records import CommitRecord, StagedTable, TableChange, TableState, TapGroup
from bridge.lake.tap_groups import groups_again
from bridge.singer.state import bookmark, forget, resume_points
from bridge.storage import Add, Missing, Storage
from bridge.storage.parallel import parallel_map

FILES_CHANGED = ("data", "void", "rollback", "replay", "compact")
"""The kinds of commits that change table folders: what one of these left half done is rolled forward."""
_TRIES = 20
"""How often a file is swapped again that somebody else changes at the same time, by hand or by an older run."""


class Committer:
    """The one writer of a pipeline's log during a run. `view` is the lake after the last commit that is ours.

    `notes` collects what it did beyond what it was asked for, in sentences for the operator.
    """

    def __init__(self, storage: Storage, pipeline: str, run: str, *, last: dict[str, Any]) -> None:
        self.log = Log(storage, pipeline)
        self.storage = storage
        self.run = run
        self.notes: list[str] = []
        self.table_logs = TableLogs(self.log)
        self._versions: dict[str, str | None] = {}
        # A run that died may have left more than its lease says: only the list of records shows a gap among them.
        head = self.log.head(last.get("closed"))
        clean = head == last.get("closed", 0)
        self.view = self.log.view(head)
        # Lower than the number of any later fence, also when this run ends without a commit of its own.
        self.generation = head if clean else head + 1
        if clean:
            self._check_state_file(recovering=False)
        else:
            last_change = next(self.log.history(head, fences=False), None)
            self._create("fence", self.view.state, after=last_change.n if last_change else 0)
            self._recover(last_change)
        self._check_staged()
        with suppress(LakeError):
            abort_older(self.log, self.view, self.generation, fenced=not clean)

    # step 0 and 3

    def _create(self, kind: str, state: Any, **fields: Any) -> CommitRecord:
        """Create the next record, with these `fields` of it. Raises `CommitLost` or `CommitUnknown`; either ends the
        run.
        """
        record = CommitRecord(
            n=self.view.n + 1,
            kind=kind,
            run=self.run,
            generation=self.generation,
            nonce=uuid.uuid4().hex,
            at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            state=state,
            **{"staged": self.view.staged, "groups": self._groups(kind, state)} | fields,
        )
        try:
            created, after = self.log.create(self.view, record)
        except LakeError as error:
            created, after = self._read_back(record, error), self.view.after(record)
        if not created and ((existing := self.log.record(record.n)) is None or existing.nonce != record.nonce):
            raise CommitLost("another run committed first", hint=_LOST, commit=record.n)
        if record.n < self.log.beginning().first:
            self.storage.delete(self.log.key(record.n))
            raise CommitLost("other runs committed long ago", hint=_LOST, commit=record.n)
        self.view = after
        return record

    def _groups(self, kind: str, state: Any) -> list[TapGroup] | None:
        """Return what a record says of the processes of the tap by itself: their STATEs stay where the STATE does."""
        if state == self.view.state:
            return self.view.groups
        return [] if kind == "state" and self.view.groups is not None else None

    def _read_back(self, record: CommitRecord, error: LakeError) -> bool:
        """Settle a put whose outcome is unknown: True only if the record is there and ours."""
        try:
            existing = self.log.record(record.n)
        except LakeError:
            existing = None
            error = CommitUnknown("it is not known whether the commit landed", hint=_UNKNOWN, commit=record.n)
        if existing is None:
            raise error
        return existing.nonce == record.nonce

    # step 1

    def _recover(self, last: CommitRecord | None) -> None:
        if last and last.kind in FILES_CHANGED:
            self._roll_forward(last)
        self._check_state_file(recovering=True)

    def _roll_forward(self, record: CommitRecord) -> None:
        try:
            self._publish(record)
        except Missing as missing:
            data = self._look(_state_key(self.log.pipeline))  # somebody who took over may have removed what is missing
            if record.kind == "void":
                hint = "files of the lake were deleted by somebody else; restore them from a backup of the bucket"
                raise CorruptLake("a file of the lake is gone", hint=hint, file=missing.keys[0]) from missing
            seen = parse_state(self.storage, self.log.pipeline, data[0] if data else None)
            self._void(record, self.log.view(record.n - 1), missing, seen)

    def _void(self, record: CommitRecord, before: View, missing: Missing, seen: Any) -> None:
        if seen is not None and seen == record.state != before.state:
            file = shlex.quote(f"{self.storage.uri}/{_state_key(self.log.pipeline)}")
            hint = (
                "files of the lake were deleted by somebody else: restore them; or delete "
                f"{file}, and the next run takes that commit back and loads its rows again"
            )
            raise CorruptLake("a committed file is gone", hint=hint, file=missing.keys[0], commit=record.n)
        # Staged files went into the lost commit, and start again; compacting leaves them where they are.
        staged = before.staged if record.kind == "compact" else {}
        state = forget(before.state, before.staged.keys() - staged.keys())
        entries = inverse(self.log.pipeline, record, before, self._settled(record, before))
        self.notes.append(f"commit {record.n} had lost {len(missing.keys)} file(s) before it was visible: taken back")
        rejects = self.view.rejects_again(before)
        more = rejects | {"groups": groups_again(before, before.staged.keys() - staged.keys())}
        self._roll_forward(self._create("void", state, tables=entries, voids=record.n, staged=staged, **more))

    def _settled(self, record: CommitRecord, before: View) -> dict[str, str]:
        """Have no file of a commit be rewritten any more; return the keys of those that are, each with a new name.

        Who comes after us may do this before us, but then our next record is none.
        """
        changes = changes_of(self.log.pipeline, record)
        done = {one.add.key for one in self.storage.settle_rewrites(changes)}
        files = {
            f"{table.folder}/{name}": file for table in before.tables.values() for name, file in table.files.items()
        }
        same = {one.add.key for change in changes for one in change.rewrites} - done
        for add in self.storage.missing_pending([Add(key, key, files[key].size) for key in sorted(same)])[:1]:
            hint = "somebody else has changed it: restore it from a backup of the bucket"
            raise CorruptLake("a file of the lake is not what the log says", hint=hint, file=add.key)
        return {key: file_name(self.generation, seq, table_and_name(key)[1]) for seq, key in enumerate(sorted(done))}

    def _check_state_file(self, *, recovering: bool) -> None:
        """Compare `state.json` with the head, behind which an unfinished step 5 may have left it."""
        state, data = self.view.state, self._look(_state_key(self.log.pipeline))
        there = parse_state(self.storage, self.log.pipeline, data[0] if data else None)
        if there is None:
            if state is not None:
                self._write_state()
        elif there == state:
            if recovering:  # it may be an earlier commit's, which said the same
                self._write_state()
        elif recovering and there == self._state_before():
            self._write_state()
        elif was_said(self.log, self.view.n, there):
            hint = f"an older STATE would load rows twice: {_go_on(self.storage, self.log.pipeline)}"
            raise LakeError("state.json is older than the lake", hint=hint, file=_state_key(self.log.pipeline))
        else:
            expect_object(self.storage, self.log.pipeline, there)
            self._create("state", there, reason="state.json was edited by hand", staged=self._still_staged(there))
            self.notes.append(f"state.json was edited by hand: that STATE counts, as commit {self.view.n}")

    def _state_before(self) -> Any:
        """Return the last STATE that differs from the head's and was not taken back."""
        below = self.view.n + 1
        for record in self.log.history(self.view.n, fences=False):
            if record.n < below and record.state != self.view.state:
                return record.state
            below = below if record.voids is None else min(below, record.voids)
        return None

    def _check_staged(self) -> None:
        """Have a half loaded table start again if a file of it is gone: the tap would not send those rows twice."""
        staged = self.view.staged
        files = {add_of(stage.folder, file): s for s, stage in staged.items() for file in stage.files}
        lost = {files[add] for add in self.storage.missing_pending(list(files))}
        if lost:
            kept = {stream: stage for stream, stage in staged.items() if stream not in lost}
            more = {"groups": groups_again(self.view, lost), "reason": "staged files are gone"}
            self._create("state", forget(self.view.state, lost), staged=kept, **more)
            self._write_state()
            self.notes.append(f"files of half loaded tables were gone, these start again: {', '.join(sorted(lost))}")

    # steps 2 to 6

    def commit(self, state: Any, tables: list[TableChange], *, kind: str = "data", **fields: Any) -> CommitRecord:
        """Make one epoch visible together with its STATE, by a record with these `fields`, and return it."""
        self._verify(tables, fields.get("staged", {}))
        parallel_map(self.storage, lambda change: self.table_logs.check(self.view, change), tables)
        record = self._create(kind, state, tables=tables, **fields)
        try:
            self._publish(record)
        except Missing as missing:
            self._check_head()
            hint = "something deletes pending files; run again: the next run takes this commit back"
            raise LakeError("a pending file is gone", hint=hint, file=missing.keys[0], commit=record.n) from missing
        self._write_state()
        return record

    def set_state(self, state: Any, reason: str) -> None:
        """Record a STATE that an operator gave."""
        groups = None if self.view.groups is None else list[TapGroup]()
        self._create("state", state, reason=reason, staged=self._still_staged(state), groups=groups)
        self._write_state()

    def note_start(self, **fields: Any) -> None:
        """Record from where this run's tap goes on, as `bridge.load.checks.replay_guard` looks for it."""
        self._create("fence", self.view.state, after=self.view.said, **fields)

    def _still_staged(self, state: Any) -> dict[str, StagedTable]:
        """Return what stays staged: rows that reach up to a bookmark cannot be gone on with from another one."""
        before, still = self.view.state, dict[str, StagedTable]()
        elsewhere = resume_points(before) != resume_points(state)
        for stream, stage in self.view.staged.items():
            now, then = bookmark(state, stream), bookmark(before, stream)
            # One that the STATE knows by another name: which bookmark is its own is not known here.
            if now == then and not (then is None and elsewhere):
                still[stream] = stage
        return still

    def _verify(self, tables: list[TableChange], staged: dict[str, StagedTable]) -> None:
        adds = [add_of(change.folder, add) for change in tables for add in change.adds]
        adds += [add_of(stage.folder, file) for stage in staged.values() for file in stage.files]
        for add in self.storage.missing_pending(adds)[:1]:
            self._check_head()
            raise EngineError("a pending file is not what was written", hint=_GONE, file=add.source, bytes=add.size)

    def _publish(self, record: CommitRecord) -> None:
        try:
            self.storage.publish(changes_of(self.log.pipeline, record))
            changes, tables = record.tables, self.view.tables
            parallel_map(self.storage, lambda c: self.table_logs.publish(record, c, tables[c.stream]), changes)
            parallel_map(self.storage, lambda c: self.write_manifests(c.stream, shared=c.shared), changes)
            if changes:
                self._check_head()  # it may have been before the last manifest's swap that somebody took over
        except LakeError as error:
            try:
                self._check_head()  # who was overtaken stumbles over what the other one has done
            except CommitLost as lost:
                self._undo_manifests(record)
                raise lost from error
            raise

    def _undo_manifests(self, record: CommitRecord) -> None:
        """Put manifests back that we wrote after somebody took over, if the tables are what they were before `record`.

        Then the bytes that we saw had come back, so our swap found nothing changed. All files that are listed in them
        are there at any time: putting them back is right whether the other one has come to its own swap yet or not.
        """
        before, head = self.log.view(record.n - 1).tables, self.log.view(self.log.head()).tables
        for change in record.tables:
            old, now = before.get(change.stream), head.get(change.stream)
            if old and now and old.files.keys() == now.files.keys():
                for key in _manifests(now.folder):
                    self.storage.compare_and_swap(
                        key, self._uris(change.stream, now, shared=change.shared), self._versions.get(key)
                    )

    def write_manifests(self, stream: str, *, shared: bool) -> None:
        """Have the manifests of a stream's table list exactly its files; of a `shared` one, those of all pipelines."""
        table = self.view.tables[stream]
        for key in _manifests(table.folder):
            self._swap(key, lambda: self._uris(stream, table, shared=shared))

    def _uris(self, stream: str, table: TableState, *, shared: bool) -> bytes:
        names = set(table.files)
        if shared:  # whoever writes the manifest last has to have seen the logs of all
            me = Owner(self.log.pipeline, stream)
            others = [owner for owner in owners_of(self.storage, table.folder)[0] if owner != me]
            names = names.union(*(table.files for table in tables_of(self.storage, others).values()))
        return "".join(f"{self.storage.uri}/{table.folder}/{name}\n" for name in sorted(names)).encode()

    def _write_state(self) -> None:
        key = _state_key(self.log.pipeline)
        # A STATE may come back: blanks at its end make the bytes, and so the version, this commit's alone.
        blanks = "".join(" \t"[int(bit)] for bit in f"{self.view.said:b}").encode()
        for other in self._swap(key, lambda: dumps(self.view.state, indent=2) + blanks):
            self.storage.write(f"{key}.edited", other)
            self.notes.append("state.json was edited by hand while a run went on: that is now state.json.edited")

    def _swap(self, key: str, data: Callable[[], bytes]) -> list[bytes]:
        """Write a file that shows the head, and return what somebody else had written there since we last saw it.

        Its version is known from before the last look at the head: whoever took over since then has changed the file
        or will. Raises `CommitLost` if somebody did.
        """
        others: list[bytes] = []
        if key not in self._versions:
            self._look(key)
        for _ in range(_TRIES):
            self._versions[key] = new = self.storage.compare_and_swap(key, data(), self._versions[key])
            if new:
                return others
            others += self._look(key)
        raise LakeError("a file of the lake is changed by somebody all the time", hint="find out by whom", file=key)

    def _look(self, key: str) -> list[bytes]:
        """Note a file's version while we are the last writer, and return its bytes."""
        stored = self.storage.read_versioned(key)
        self._check_head()
        self._versions[key] = stored.etag if stored else None
        return [stored.data] if stored else []

    def _check_head(self) -> None:
        """Raise `CommitLost` if another writer has made a commit after ours."""
        if self.storage.size(self.log.key(self.view.n + 1)) is not None:
            raise CommitLost("another run took over", hint=_OVERTAKEN, commit=self.view.n + 1)


_GONE = (
    "nothing was committed. On a cluster the bucket must be a folder that driver and executors share, or s3://; "
    "else something deletes pending files: run again"
)
_LOST = "two runs of this pipeline were alive; this one ended before it changed anything, the other goes on"
_OVERTAKEN = "two runs of this pipeline were alive; this one ends, what it committed is the other's to go on from"
_UNKNOWN = "check the bucket and run again: the next run finds out what happened; nothing was aborted"


def _manifests(folder: str) -> list[str]:
    """Return the keys of a table's manifests: Hive and its kin take a folder of manifests, not a file."""
    return [f".bridge/tables/{folder}.{name}" for name in ("manifest", "symlinks/manifest")]


def _state_key(pipeline: str) -> str:
    return meta(pipeline, "state.json")


def was_said(log: Log, head: int, state: Any) -> bool:
    """Return whether a commit up to `head` holds this STATE; one that none holds was written by hand."""
    return any(record.state == state for record in log.history(head, fences=False))


def read_state_file(storage: Storage, pipeline: str) -> Any:
    """Return what `state.json` says, None if there is none. Raises `CorruptLake` if it is not JSON."""
    return parse_state(storage, pipeline, storage.read(_state_key(pipeline)))


def parse_state(storage: Storage, pipeline: str, data: bytes | None) -> Any:
    """Return what these bytes of `state.json` say, None for none. Raises `CorruptLake` if they are not JSON."""
    if data is None:
        return None
    try:
        return loads(data)
    except NotJson as error:
        hint = _go_on(storage, pipeline)
        raise CorruptLake("state.json is not JSON", hint=hint, file=_state_key(pipeline)) from error


def expect_object(storage: Storage, pipeline: str, state: Any) -> None:
    """Raise `CorruptLake` for what was written into `state.json` by hand and is no STATE."""
    if not isinstance(state, dict):
        hint = _go_on(storage, pipeline)
        raise CorruptLake("state.json is not a JSON object", hint=hint, file=_state_key(pipeline))


def _go_on(storage: Storage, pipeline: str) -> str:
    """Say how a `state.json` that nobody can use is got rid of: it is only a copy."""
    file = shlex.quote(f"{storage.uri}/{_state_key(pipeline)}")
    return f"rm {file}; the commit log brings back the last STATE"
