"""The bucket of the model: what each request does to it, all at once, and what must be true of it at any time.

Its `seen`, `settled`, `purged` and `broken` are no objects: they remember what happened, for `wrong`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple


class File(NamedTuple):
    """A Parquet file; `run` stands for the uuid in its name. A `part` is an `upload`, or a `small` object.

    Or it is the bytes `over` those that a file had before, whose name is `slot`: they hold the rows of all loads.
    """

    load: int
    part: str
    generation: int
    run: int
    slot: int = 0

    @property
    def name(self) -> Any:
        """What others of other bytes may have as well."""
        return ("over", self.slot) if self.part == "over" else self


class Record(NamedTuple):
    """A commit. `run` is its nonce too: no run creates two different records of one number.

    `rewrites` are those of its `adds` that replace a file's bytes; nobody moves what is `still`: the bytes that they
    replace, or in a void what was not replaced.
    """

    kind: str
    run: int
    state: int
    adds: tuple[File, ...] = ()
    removes: tuple[File, ...] = ()
    aborts: tuple[File, ...] = ()
    voids: int = 0
    rewrites: tuple[File, ...] = ()
    still: tuple[File, ...] = ()


Log = tuple[Record, ...]
Files = frozenset[File]


def state_of(log: Log) -> int:
    """Return the STATE after these commits: how many loads of the source it covers, 0 for no STATE."""
    return log[-1].state if log else 0


def said(state: int, repeats: int) -> int:
    """Return how a STATE is written, where it is the same again after so many loads; never the same for 0."""
    return (state - 1) % repeats + 1 if state and repeats else state


def last_change(log: Log) -> int:
    """Return the number of the last commit that is no fence, 0 for none."""
    return next((n for n in range(len(log), 0, -1) if log[n - 1].kind != "fence"), 0)


def record_at(log: Log, n: int) -> Record | None:
    """Return commit `n`, None if there is none."""
    return log[n - 1] if 0 < n <= len(log) else None


@cache
def live(log: Log) -> Files:
    """Return the table's files after these commits."""
    if not log:
        return frozenset()
    return (live(log[:-1]) - set(log[-1].removes)) | set(log[-1].adds)


class Bucket(NamedTuple):
    """All there is in the bucket, what is on the wire to it, and how much may still go wrong with it."""

    overwrite: bool
    log: Log = ()
    pending: Files = frozenset()
    visible: Files = frozenset()
    trash: frozenset[tuple[int, File]] = frozenset()
    """What each commit has taken away."""
    manifest: frozenset[Any] = frozenset()
    state: tuple[int, int] = (0, 0)
    """What `state.json` says, 0 where there is none, and the commit it says it for."""
    closed: int = 0
    """The last head that a run closed cleanly. The lease may say so, or not any more."""
    flying: tuple[tuple[int, Record], ...] = ()
    purges: int = 0
    losses: int = 0
    repeats: int = 0
    purged: bool = False
    seen: frozenset[int] = frozenset()
    """The commits whose STATE somebody has read in `state.json` or on stdout."""
    settled: int = 0
    """As long as this is the last commit that changed anything the bucket has to be as it says, to the last file."""
    broken: str = ""

    # what a run asks: each yields the possible answers, with the bucket afterwards

    def head(self) -> Iterator[tuple[Any, Bucket]]:
        yield (self.log, False), self
        if self.closed == len(self.log):
            yield (self.log, True), self

    def read(self, n: int) -> Iterator[tuple[Any, Bucket]]:
        yield record_at(self.log, n), self

    def put_if_absent(self, n: int, record: Record) -> Iterator[tuple[Any, Bucket]]:
        """None is no answer: it landed, or it is still on its way."""
        absent = n > len(self.log)
        yield absent, self.after_put(n, record)
        if self.losses:
            unheard = self._replace(losses=self.losses - 1)
            yield None, unheard.after_put(n, record)
            if absent:
                yield None, unheard._replace(flying=(*self.flying, (n, record)))

    def after_put(self, n: int, record: Record) -> Bucket:
        if n <= len(self.log):
            return self
        if n > len(self.log) + 1:
            return self._replace(broken="the log has a gap")
        return self._replace(log=(*self.log, record))

    def fetch(self, name: str) -> Iterator[tuple[Any, Bucket]]:
        yield self.state if name == "state.json" else self.manifest, self

    def swap(self, name: str, data: Any, version: Any, n: int) -> Iterator[tuple[Any, Bucket]]:
        """A version is the bytes: what is written twice has it twice."""
        there = self.state if name == "state.json" else self.manifest
        done = there in (version, data)
        yield done, self.with_file(name, data, n) if done else self

    def write(self, name: str, data: Any, n: int) -> Iterator[tuple[Any, Bucket]]:
        yield None, self.with_file(name, data, n)

    def with_file(self, name: str, data: Any, n: int) -> Bucket:
        return self.with_seen(n)._replace(state=data) if name == "state.json" else self._replace(manifest=data)

    def write_pending(self, files: tuple[File, ...]) -> Iterator[tuple[Any, Bucket]]:
        yield None, self._replace(pending=self.pending | set(files))

    def has(self, where: str, file: File) -> Iterator[tuple[Any, Bucket]]:
        yield self._has(where, file), self

    def _has(self, where: str, file: File) -> bool:
        if where.startswith("trash/"):
            return (int(where[6:]), _nameless(file)) in self.trash
        return file in getattr(self, where)

    def lost(self, files: tuple[File, ...]) -> Iterator[tuple[Any, Bucket]]:
        yield bool(set(files) - self.pending), self

    def at(self, file: File) -> Iterator[tuple[Any, Bucket]]:
        """Look what is at a file's name, as the object's metadata say."""
        yield self._at(file), self

    def _at(self, file: File) -> File | None:
        return next((there for there in self.visible if there.name == file.name), None)

    def show(self, file: File, source: str) -> Iterator[tuple[Any, Bucket]]:
        """Complete an upload, or copy an object. False if there is nothing to complete or to copy."""
        if not self._has(source, file):
            yield False, self
            return
        after = self._replace(visible=self.visible - {self._at(file)} | {file})
        if file.part in ("upload", "over") and source == "pending":
            after = after._replace(pending=self.pending - {file})
        yield True, after

    def abort(self, file: File) -> Iterator[tuple[Any, Bucket]]:
        yield None, self._replace(pending=self.pending - {file})

    def drop(self, file: File, source: str) -> Iterator[tuple[Any, Bucket]]:
        """Delete what was copied."""
        if source == "pending":
            yield None, self._replace(pending=self.pending - {file})
        else:
            yield None, self._replace(trash=self.trash - {(int(source[6:]), _nameless(file))})

    def keep(self, file: File, n: int) -> Iterator[tuple[Any, Bucket]]:
        there = self._at(file)
        yield None, self._replace(trash=self.trash | {(n, _nameless(there))}) if there else self

    def keep_old(self, file: File, seen: File | None, n: int) -> Iterator[tuple[Any, Bucket]]:
        """Copy what is at a name to the trash if it is still what was seen there; say whether it was."""
        there = self._at(file)
        done = there is not None and there == seen
        yield done, self._replace(trash=self.trash | {(n, _nameless(there))}) if there and done else self

    def remove(self, file: File) -> Iterator[tuple[Any, Bucket]]:
        yield None, self._replace(visible=self.visible - {self._at(file)})

    def pending_files(self) -> Iterator[tuple[Any, Bucket]]:
        """Nobody may rely on this list: it may be refused, or lack what another writer has begun."""
        yield self.pending, self
        if self.pending:
            yield frozenset(), self

    def started(self, view: Log) -> Iterator[tuple[Any, Bucket]]:
        """The run is open, its tap starts: the bucket is as the log says."""
        yield None, self._replace(settled=max(self.settled, last_change(view)))

    def report(self, n: int, view: Log) -> Iterator[tuple[Any, Bucket]]:
        """The STATE of commit `n` is printed; with a view, its epoch is done."""
        yield None, self.with_seen(n)._replace(settled=max(self.settled, last_change(view)))

    def with_seen(self, n: int) -> Bucket:
        record = record_at(self.log, n)
        if record and n == last_change(self.log) and not self.visible.issuperset(record.adds):
            return self._replace(seen=self.seen | {n}, broken="a STATE was seen before its rows")
        return self._replace(seen=self.seen | {n})

    def close(self, n: int) -> Iterator[tuple[Any, Bucket]]:
        yield None, self._replace(closed=max(self.closed, n))

    # what happens by itself

    def events(self) -> Iterator[tuple[str, Bucket]]:
        """A put whose sender has given up lands; an unfinished upload is purged."""
        for n, record in self.flying:
            landed = self.after_put(n, record)
            yield f"the put of {record.kind} {n} lands late", landed._replace(flying=())
        if self.purges:
            for file in sorted(self.pending):
                if file.part in ("upload", "over"):
                    after = self._replace(pending=self.pending - {file}, purges=self.purges - 1, purged=True)
                    yield f"the upload {file.load}g{file.generation}r{file.run} is purged", after

    def quiet(self) -> Bucket:
        """Return the bucket if nothing goes wrong with it any more."""
        return self._replace(flying=(), purges=0, losses=0)

    # what must be true

    def wrong(self) -> str:
        """Return the promise that is broken, or nothing."""
        if self.broken:
            return self.broken
        voided = {record.voids for record in self.log if record.kind == "void"}
        if voided & self.seen:
            return "a STATE was seen, and its commit taken back"
        if voided and not self.purged:
            return "a commit was taken back though nothing was purged"
        for n, file in self.trash:
            if file not in map(_nameless, record_at(self.log, n).removes):  # type: ignore[union-attr]
                return "the trash has bytes that its commit did not replace"
        if not covered(self.log, self.overwrite):
            return "the STATE does not cover the rows that the log names, each once"
        if self.settled == last_change(self.log):
            return self._unsettled()
        return ""

    def _unsettled(self) -> str:
        named = live(self.log)
        if named - self.visible:
            return "rows that the STATE covers are not visible"
        if self.visible - named:
            return "a file is visible that no commit names"
        if self.manifest != named_in(named):
            return "the manifest is not what the log says"
        if self.state[0] != said(state_of(self.log), self.repeats):
            return "state.json is not what the log says"
        return ""


def _nameless(file: File) -> File:
    """Return the bytes of a file, whatever its name."""
    return file._replace(slot=-1)


def named_in(files: Files) -> frozenset[Any]:
    """Return what a manifest says of a table."""
    return frozenset(file.name for file in files)


@cache
def covered(log: Log, overwrite: bool) -> bool:
    """Return whether the table's files are those of the loads that the STATE covers; with `overwrite`, of the last."""
    state, files = state_of(log), live(log)
    if any(file.part == "over" for file in files):
        whole = [file.load for file in files if file.part == "over"]
        files = frozenset(file for file in files if file.part != "over")
        begun = {file.part for file in files}  # the table's first load had a file to rewrite, and no other
        return whole == [state] and all(
            sorted(file.load for file in files if file.part == part) == [*range(2, state + 1)] for part in begun
        )
    found = sorted((file.load, file.part) for file in files)
    loads = [state] if overwrite and state else range(1, state + 1)
    parts = sorted({part for _, part in found})
    return found == [(load, part) for load in loads for part in parts] and bool(found) == bool(state)
