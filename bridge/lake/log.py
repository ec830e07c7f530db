"""The commit log of one pipeline: numbered records, the only truth about files and STATE.

`commits/<20 digits>.json` has no gaps. Records are created by put-if-absent and never changed; every 100th carries a
snapshot, so that reading the lake's present costs at most a hundred small reads however long the history is.

Once its oldest records were deleted (`retention.commits`) the log begins at a snapshot: `begins.json` says at which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import CorruptLake, LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.folder_names import paths_of
from bridge.storage import Add, Change, Remove, Rewrite, Storage, leads_out
from bridge.storage.parallel import each

SNAPSHOT_EVERY = 100
_STEPS = 100
"""So many records past a known one are looked for one by one; a listing of all of them is cheaper then."""
_RECORD = re.compile(r"[0-9]{20}\.json")
FORMAT = 1
_KEPT = ("size", "rows", "version", "deleted", "stale")
"""What is known of a live file: the `version` of its rows where they have one, `deleted` when all of them say that they
are, `stale` when they should."""


def meta(pipeline: str, *parts: str) -> str:
    """Return a key in the pipeline's own folder of the bucket."""
    return "/".join((".bridge", pipeline, *parts))


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table as the log says it is. `files` maps a file's name to its `size` in bytes and its `rows`, and
    to the `version` of these where they have one.

    `version` is the one that the RECORDs of an overwrite carried, or that was activated last. Of a `format` but
    `parquet` it has a log of its own, for readers: files that it removes stay where they are, for those who read the
    table as it was. Its folders are named after `partition_by`, as the settings said at its first commit.
    """

    folder: str
    schema: str | None
    files: dict[str, dict[str, int]] = field(default_factory=dict)
    version: int | None = None
    format: str = "parquet"
    partition_by: tuple[Any, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file["rows"] for file in self.files.values())

    @property
    def in_format(self) -> dict[str, str]:
        """What entries of commits say of the table's format; nothing of a plain one."""
        return {"format": self.format} if self.format != "parquet" else {}


def bookmarks(state: Any) -> dict[str, Any]:
    """Return what a STATE says by stream; a flat one by each of its keys."""
    if not isinstance(state, dict):
        return {}
    inner = state.get("bookmarks")
    return inner if isinstance(inner, dict) else {k: v for k, v in state.items() if k != "currently_syncing"}


@dataclass(frozen=True, slots=True)
class View:
    """The lake after commit `n`: STATE, tables, and the staged files of a full table that its tap can resume.

    `moved` says by stream when its bookmark last changed, in ISO 8601; `said` is the last commit that is no fence.
    `rejects` are the reject files that count, by key: not of a table that was replaced since, nor replayed, nor purged.
    `groups`: the STATE is shown for several processes of the tap, each `{streams, state}` with its own whole one; empty
    where it was changed by hand since. None: it is one tap's.
    """

    n: int = 0
    state: Any = None
    tables: dict[str, LiveTable] = field(default_factory=dict)
    staged: dict[str, Any] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    said: int = 0
    rejects: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: list[dict[str, Any]] | None = None

    def table(self, names: Iterable[str]) -> LiveTable | None:
        """Return the table of a stream that has these names, None if it has none yet."""
        return next((self.tables[name] for name in names if name in self.tables), None)

    def version(self, stream: str) -> int | None:
        """Return the `version` of a stream's rows: of the staged ones if there are any, else of its table."""
        if stage := self.staged.get(stream):
            return int(stage["version"])
        return self.tables[stream].version if stream in self.tables else None

    def after(self, record: dict[str, Any]) -> View:
        """Return the view after one more record."""
        tables = dict(self.tables)
        for entry in record.get("tables", []):
            old = tables.get(entry["stream"])
            files = dict(old.files) if old else {}
            for name in entry["removes"]:
                files.pop(name, None)
            files |= {add["name"]: {fact: add[fact] for fact in _KEPT if fact in add} for add in entry["adds"]}
            partition_by = tuple(entry.get("partition_by", old.partition_by if old else ()))
            tables[entry["stream"]] = LiveTable(
                entry["folder"],
                entry["schema"],
                files,
                entry.get("version"),
                entry.get("format", "parquet"),
                partition_by,
            )
        said = self.said if record["kind"] == "fence" else record["n"]
        staged, rejects = record.get("staged", {}), self._rejects(record)
        groups = record.get("groups")
        return View(record["n"], record["state"], tables, staged, self._moved(record), said, rejects, groups)

    def _rejects(self, record: dict[str, Any]) -> dict[str, dict[str, Any]]:
        new, gone = record.get("rejects", ()), record.get("consumed", ())
        replaced = {entry["stream"] for entry in record.get("tables", ()) if entry["mode"] == "replace"}
        if not (new or gone or (replaced and self.rejects)):
            return self.rejects
        kept = {f: r for f, r in self.rejects.items() if f not in gone and r["stream"] not in replaced}
        return kept | {reject["file"]: {"commit": record["n"]} | reject for reject in new}

    def rejects_again(self, then: View) -> dict[str, list[Any]]:
        """Return what a record says so that the rejects are those of an earlier view again."""
        back = [reject for file, reject in then.rejects.items() if self.rejects.get(file) != reject]
        return {"rejects": back, "consumed": [file for file in self.rejects if file not in then.rejects]}

    def _moved(self, record: dict[str, Any]) -> dict[str, str]:
        if record["state"] == self.state:
            return self.moved
        old, at = bookmarks(self.state), record.get("at", "")
        return {
            stream: self.moved.get(stream, at) if stream in old and old[stream] == bookmark else at
            for stream, bookmark in bookmarks(record["state"]).items()
        }

    def snapshot(self) -> dict[str, Any]:
        """Return what a record keeps of this view, apart from what it says itself."""
        return {
            s: {"folder": t.folder, "schema": t.schema, "files": t.files, "version": t.version}
            | t.in_format
            | ({"partition_by": t.partition_by} if t.partition_by else {})
            for s, t in self.tables.items()
        }


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the log begins: at record `first`. Those below `swept` are deleted, those between may still be there."""

    first: int = 1
    swept: int = 1


class Log:
    """Reads the log and creates its next record. Raises `CorruptLake` rather than guess at an unreadable record."""

    def __init__(self, storage: Storage, pipeline: str) -> None:
        self.storage = storage
        self.pipeline = pipeline

    def key(self, n: int) -> str:
        return meta(self.pipeline, "commits", f"{n:020d}.json")

    def record(self, n: int) -> dict[str, Any] | None:
        """Return record `n`, or None if it does not exist."""
        data = self.storage.read(self.key(n))
        if data is None:
            return None
        try:
            record = loads(data)
            if record["format"] > FORMAT:
                hint = "upgrade singer-bridge: a newer version wrote this bucket"
                raise CorruptLake("the commit log has a newer format", hint=hint, file=self.key(n))
            if record["n"] != n or "state" not in record:
                raise KeyError("n")
            if bad := [name for name in paths_of(record) if leads_out(name)]:
                hint = "somebody else wrote it: see who may write to the bucket; nothing was changed"
                raise CorruptLake("a commit record names a file out of the bucket", hint=hint, name=bad[0], record=n)
        except (NotJson, KeyError, TypeError) as error:
            hint = "restore this file from a backup of the bucket; nothing was read past it and nothing was changed"
            raise CorruptLake("a commit record is unreadable", hint=hint, file=self.key(n)) from error
        return dict(record)

    def head(self, hint: int | None = None) -> int:
        """Return the number of the last record, 0 for none. `hint`, if that record exists, saves the listing."""
        if hint and self._exists(hint):
            for n in range(hint, hint + _STEPS):
                if not self._exists(n + 1):
                    return n
        names = self.storage.list(meta(self.pipeline, "commits"))
        n = int(max((name for name in names if _RECORD.fullmatch(name)), default="0")[:20])
        while self._exists(n + 1):
            n += 1
        return n

    def latest(self) -> int:
        """Return the head for those who only read: from where the lease last saw it on, without a listing."""
        try:
            lease = loads(self.storage.read(meta(self.pipeline, "lease.json")) or b"{}")
        except NotJson:  # it is being written, or its writer died
            lease = {}
        seen = lease.get("head") if isinstance(lease, dict) else None
        return self.head(seen if isinstance(seen, int) else None)

    def _exists(self, n: int) -> bool:
        return self.storage.size(self.key(n)) is not None

    def beginning(self) -> Beginning:
        """Return where the log begins. Raises `CorruptLake` if the file that says it is unreadable."""
        key = meta(self.pipeline, "begins.json")
        data = self.storage.read(key)
        if data is None:
            return Beginning()
        try:
            said = loads(data)
            return Beginning(int(said["first"]), int(said["swept"]))
        except (NotJson, KeyError, TypeError, ValueError) as error:
            hint = "restore it, or write into `first` and `swept` the lowest multiple of 100 that has a record"
            raise CorruptLake("where the commit log begins is unreadable", hint=hint, file=key) from error

    def begin_at(self, beginning: Beginning) -> None:
        """Have the log begin at a snapshot; only then may older records be deleted."""
        said = {"format": FORMAT, "first": beginning.first, "swept": beginning.swept}
        self.storage.write(meta(self.pipeline, "begins.json"), dumps(said))

    def view(self, n: int) -> View:
        """Return the lake after commit `n`."""
        try:
            return self._folded(n)
        except (AttributeError, KeyError, TypeError) as error:
            hint = "restore the bucket's commits from a backup; nothing was changed"
            raise CorruptLake("a commit record is incomplete", hint=hint, last=self.key(n)) from error

    def _folded(self, n: int) -> View:
        start = n - n % SNAPSHOT_EVERY
        view = View()
        if start:
            record = self._existing(start, n)
            tables = {
                s: LiveTable(**t | {"partition_by": tuple(t.get("partition_by", ()))})
                for s, t in record["snapshot"].items()
            }
            moved = record.get("moved", dict.fromkeys(bookmarks(record["state"]), record.get("at", "")))
            said = record.get("after", start) if record["kind"] == "fence" else start
            staged, rejects = record.get("staged", {}), record.get("rejected", {})
            groups = record.get("groups")
            view = View(start, record["state"], tables, staged, moved, said, rejects, groups)
        for record in each(self.storage, lambda number: self._existing(number, n), range(start + 1, n + 1)):
            view = view.after(record)
        return view

    def _existing(self, n: int, asked: int) -> dict[str, Any]:
        """Return record `n`, which commit `asked` cannot be known without."""
        record = self.record(n)
        if record is not None:
            return record
        first = self.beginning().first
        if n < first:
            hint = "records are kept for `retention.commits`, and as long as something needs them"
            raise LakeError("this commit is not in the log any more", hint=hint, commit=asked, first=first)
        hint = "restore it from a backup of the bucket; without it the state cannot be known"
        raise CorruptLake("a commit record is missing", hint=hint, file=self.key(n))

    def history(self, head: int, *, fences: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the records from `head` back to the first that is kept. A row of fences may be passed in one step."""
        n, first = head, self.beginning().first
        while n >= first:
            record = self.record(n)
            if record is None and n < self.beginning().first:
                return  # a run that ended meanwhile has deleted the oldest ones
            record = record or self._existing(n, n)
            if fences or record["kind"] != "fence":
                yield record
                n -= 1
            else:
                n = min(record.get("after", n), n - 1)

    def _kept(self, rejects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return those of the reject files that the retention has left: else snapshots would grow for ever."""
        folders = {file.rpartition("/")[0] for file in rejects}
        there = {f"{folder}/{name}" for folder in folders for name in self.storage.list(folder)}
        return {file: reject for file, reject in rejects.items() if file in there}

    def create(self, view: View, record: dict[str, Any]) -> tuple[bool, View]:
        """Put record `view.n + 1` if it is absent; return whether it is ours and the view after it."""
        after = view.after(record)
        if after.n % SNAPSHOT_EVERY == 0:
            after = replace(after, rejects=self._kept(after.rejects))
            record = record | {"snapshot": after.snapshot(), "moved": after.moved, "rejected": after.rejects}
        return self.storage.put_if_absent(self.key(after.n), dumps(record, indent=1)), after


def add_of(folder: str, file: dict[str, Any]) -> Add:
    """Return how a file that a record or a report names gets into its table's folder."""
    return Add(file["source"], f"{folder}/{file['name']}", file["size"], file.get("upload", ""))


def left_behind(pipeline: str, n: int, folder: str) -> str:
    """Return the key that says that commit `n` removed files of a table that stay in its folder for a while."""
    return meta(pipeline, "trash", f"{n:020d}", f"{folder}.kept")


def rows_of(entry: dict[str, Any]) -> int:
    """Return how many rows came with a commit's entry: not those of files that are only written anew."""
    if "rows" in (merged := entry.get("merged", {})):
        return int(merged["rows"])
    new = (add for add in entry["adds"] if add["name"] not in entry["removes"] and "rewritten" not in add)
    return sum(add["rows"] for add in new)


def changes_of(pipeline: str, record: dict[str, Any]) -> list[Change]:
    """Return what publishing this record does to the table folders. What goes and comes under one name is rewritten."""
    changes = []
    for entry in record.get("tables", []):
        folder = entry["folder"]
        trash = meta(pipeline, "trash", f"{record['n']:020d}", folder)
        # Of a table with a log of its own a file stays where it is: readers of the past are still to find it.
        removes = () if "format" in entry else entry["removes"]
        gone = {f"{folder}/{name}": f"{trash}/{name}.removed" for name in removes}
        # What was adopted is where it is to be: there is nothing to move, and no source to take away.
        adds = [add for file in entry["adds"] if (add := add_of(folder, file)).source != add.key]
        new = {add.key for add in adds}
        changes.append(
            Change(
                folder,
                tuple(add for add in adds if add.key not in gone),
                tuple(Remove(key, place) for key, place in gone.items() if key not in new),
                replace=entry["mode"] == "replace" and "format" not in entry,
                trash=trash,
                aborts=tuple(add_of(folder, add) for add in entry.get("aborts", [])),
                rewrites=tuple(Rewrite(add, gone[add.key]) for add in adds if add.key in gone),
            )
        )
    return changes


def inverse(
    pipeline: str, record: dict[str, Any], before: View, rewritten: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the table entries that take `record` back. What it wanted to bring back from the trash stays there.

    `rewritten` are the keys of those files whose rewriting is done (`Storage.settle`), each with the name under which
    its old bytes come back: a new one, as a copy that a store makes late must not undo a later commit. The other files
    that the record rewrites are as they were, and stay so.
    """
    entries, pending = [], meta(pipeline, "pending", "")
    for entry, change in zip(record["tables"], changes_of(pipeline, record), strict=True):
        trash, names = {remove.key: remove.trash for remove in change.removes}, rewritten or {}
        trash |= {one.add.key: one.trash for one in change.rewrites if one.add.key in names}
        same = {one.add.key for one in change.rewrites} - trash.keys()
        old, folder = before.tables.get(entry["stream"]) or LiveTable(entry["folder"], None), entry["folder"]
        back = [
            {"name": names.get(key := f"{folder}/{name}", name), "source": trash.get(key, key), **old.files[name]}
            for name in entry["removes"]
        ]
        entries.append(
            {
                "stream": entry["stream"],
                "folder": entry["folder"],
                "schema": old.schema,
                "version": old.version,
                "mode": "append",
                "adds": back,
                "removes": [add["name"] for add in entry["adds"] if f"{folder}/{add['name']}" not in same],
                "aborts": [add for add in entry["adds"] if add["source"].startswith(pending)],
            }
            | {key: entry[key] for key in ("shared", "format") if key in entry}
            | ({"partition_by": old.partition_by} if "partition_by" in entry else {})
        )
    return entries
