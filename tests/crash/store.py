"""An S3 store in memory for the explorer: what a request does to it, all at once, and what must be true at any time.

A `Bucket` is a value. Its objects are just those that the real code wrote; what else it holds remembers what happened
to them, for `wrong`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

from bridge.exact_json import loads
from bridge.lake.paths import pipeline_key
from bridge.lake.record_json import read_commit
from bridge.lake.records import CommitRecord

PIPELINE, FOLDER = "p", "t"
STATE, WITNESS = pipeline_key(PIPELINE, "state.json"), pipeline_key(PIPELINE, "published.json")
MANIFEST = f".bridge/tables/{FOLDER}.manifest"
_COMMITS, _PENDING, _TRASH = (pipeline_key(PIPELINE, name, "") for name in ("commits", "pending", "trash"))
NEVER_CHANGES = (pipeline_key(PIPELINE, "begins.json"), f".bridge/tables/{FOLDER}.json")
"""Nobody writes these while runs are explored."""

Request = tuple[Any, ...]
LOST = "lost"
"""No answer."""


class Object(NamedTuple):
    """What is at a key. `made_of` is in its metadata, where it replaced another one."""

    data: bytes
    made_of: str = ""


class Upload(NamedTuple):
    """An upload that is not completed, to a key."""

    key: str
    whole: Object


class File(NamedTuple):
    """A pending file of a load: an `upload`, a `small` object, or an upload `over` one of two files that are there."""

    part: str
    load: int
    name: str
    source: str

    @property
    def size(self) -> int:
        return size_of(self.part, self.load)


PARTS = ("small", "upload", "over", "over2")


def size_of(part: str, load: int) -> int:
    """A file's size tells which part of which load it is, whatever its name."""
    return 100 * (PARTS.index(part) + 1) + load


def part_of(size: int) -> tuple[str, int]:
    """The part and the load of a file of this size."""
    return PARTS[size // 100 - 1], size % 100


def is_over(part: str) -> bool:
    """Whether it replaces a file's bytes, under its name: all rows so far."""
    return part.startswith("over")


def bytes_of(source: str, size: int) -> bytes:
    """What a run wrote as this pending file."""
    return source.rpartition("/")[2].encode().ljust(size, b".")


@cache
def etag_of(data: bytes) -> str:
    """A version is the bytes: what is written twice has it twice."""
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@cache
def record_of(data: bytes) -> CommitRecord:
    """A commit record."""
    return read_commit(loads(data))


Log = tuple[bytes, ...]


def last_change(log: Log) -> int:
    """The number of the last commit that is no fence, 0 for none."""
    return next((n for n in range(len(log), 0, -1) if record_of(log[n - 1]).kind != "fence"), 0)


def said(load: int, repeats: int) -> int:
    """How the STATE after a load is written, where it is the same again after so many of them."""
    return (load - 1) % repeats + 1 if load and repeats else load


@cache
def live(log: Log) -> Mapping[str, bytes]:
    """The table's files after these commits, with their bytes."""
    if not log:
        return {}
    files, record = dict(live(log[:-1])), record_of(log[-1])
    for change in record.tables:
        for name in change.removes:
            files.pop(name, None)
        for add in change.adds:
            if add.source.startswith(_PENDING):
                files[add.name] = bytes_of(add.source, add.size)
            else:  # a void brings it back: from the trash, or it is where it was
                old = add.source.removesuffix(".removed").partition(f"{FOLDER}/")[2]
                files[add.name] = live(log[: (record.voids or 0) - 1])[old]
    return files


@dataclass(frozen=True)
class Bucket:
    """All there is in the bucket, what is on the wire to it, and how much may still go wrong with it."""

    objects: Mapping[str, Object]
    uploads: Mapping[str, Upload] = field(default_factory=dict)
    overwrite: bool = False
    repeats: int = 0
    closed: int = 0
    """The last head that a run closed cleanly. The lease may say so, or not any more."""
    flying: tuple[tuple[str, bytes], ...] = ()
    purges: int = 0
    losses: int = 0
    purged: bool = False
    seen: frozenset[int] = frozenset()
    """The commits whose STATE somebody has read in `state.json` or on stdout."""
    settled: int = 0
    """As long as this is the last commit that changed anything the bucket has to be as it says, to the last file."""
    late: bool = False
    """`state.json` was last written by a run that slept through its replacement, and found the bytes that it knew."""
    broken: str = ""

    @cached_property
    def _key(self) -> Any:
        rest = (self.closed, self.flying, self.purges, self.losses, self.purged, self.seen, self.settled, self.late)
        return (frozenset(self.objects.items()), frozenset(self.uploads.items()), rest, self.broken)

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bucket) and self._hash == other._hash and self._key == other._key

    @cached_property
    def log(self) -> Log:
        keys = sorted(key for key in self.objects if key.startswith(_COMMITS))
        return tuple(self.objects[key].data for key in keys)

    # what a run asks: each answer, with the bucket afterwards

    def answers(self, request: Request) -> list[tuple[Any, Bucket]]:
        """Do a request, in each way that it may end."""
        name, *args = request
        return list(getattr(self, f"_{name}")(*args))

    def is_settled(self, request: Request) -> bool:
        """Whether the answer is the same at any later time, and nothing changes by it: it need not be waited with."""
        name, *args = request
        if name not in ("get", "head"):
            return False
        return args[0] in NEVER_CHANGES or (args[0].startswith(_COMMITS) and args[0] in self.objects)

    def _lease(self) -> Iterator[tuple[Any, Bucket]]:
        yield None, self
        if self.closed == len(self.log):
            yield self.closed, self

    def _get(self, key: str) -> Iterator[tuple[Any, Bucket]]:
        yield (self.objects[key].data if key in self.objects else None), self

    def _head(self, key: str) -> Iterator[tuple[Any, Bucket]]:
        there = self.objects.get(key)
        yield (len(there.data), etag_of(there.data), there.made_of) if there else None, self

    def _put(self, key: str, data: bytes, condition: str, shows: int) -> Iterator[tuple[Any, Bucket]]:
        """`condition`: no object (`*`), an ETag, or none. `shows`: the commit whose STATE a `state.json` has."""
        there = self.objects.get(key)
        done = not condition or (there is None if condition == "*" else there and etag_of(there.data) == condition)
        after = self._after_put(key, data, shows) if done else self
        yield bool(done), after
        if self.losses and key.startswith(_COMMITS):
            yield LOST, replace(after, losses=self.losses - 1)
            if done:
                yield LOST, replace(self, losses=self.losses - 1, flying=(*self.flying, (key, data)))

    def _after_put(self, key: str, data: bytes, shows: int = 0) -> Bucket:
        after = replace(self, objects={**self.objects, key: Object(data)})
        if key != STATE:
            return after
        return replace(after._with_seen(shows), late=shows != last_change(self.log))

    def _copy(self, source: str, key: str, etag: str) -> Iterator[tuple[Any, Bucket]]:
        there = self.objects.get(source)
        if there is None:
            yield "gone", self
        elif etag and etag_of(there.data) != etag:
            yield "refused", self
        else:
            yield "", replace(self, objects={**self.objects, key: there})

    def _delete(self, key: str) -> Iterator[tuple[Any, Bucket]]:
        yield None, replace(self, objects={name: there for name, there in self.objects.items() if name != key})

    def _parts(self, upload: str) -> Iterator[tuple[Any, Bucket]]:
        yield (len(self.uploads[upload].whole.data) if upload in self.uploads else None), self

    def _complete(self, upload: str) -> Iterator[tuple[Any, Bucket]]:
        if upload not in self.uploads:
            yield False, self
        else:
            key, whole = self.uploads[upload]
            yield True, replace(self._without(upload), objects={**self.objects, key: whole})

    def _abort(self, upload: str) -> Iterator[tuple[Any, Bucket]]:
        yield upload in self.uploads, self._without(upload)

    def _without(self, upload: str) -> Bucket:
        return replace(self, uploads={name: there for name, there in self.uploads.items() if name != upload})

    def _list(self, prefix: str) -> Iterator[tuple[Any, Bucket]]:
        """Nobody may rely on the list of what is pending: it may be refused."""
        yield tuple(sorted(key for key in self.objects if key.startswith(prefix))), self
        if prefix == _PENDING and (self.uploads or any(key.startswith(prefix) for key in self.objects)):
            yield LOST, self

    def _uploads(self) -> Iterator[tuple[Any, Bucket]]:
        yield tuple(sorted((there.key, name) for name, there in self.uploads.items())), self

    # what a run does beside the commit protocol

    def _write_pending(self, files: tuple[File, ...]) -> Iterator[tuple[Any, Bucket]]:
        objects, uploads = dict(self.objects), dict(self.uploads)
        for file in files:
            whole = Object(bytes_of(file.source, file.size), file.source if is_over(file.part) else "")
            if file.part == "small":
                objects[file.source] = whole
            else:
                uploads[file.source] = Upload(f"{FOLDER}/{file.name}", whole)
        yield None, replace(self, objects=objects, uploads=uploads)

    def _started(self, n: int) -> Iterator[tuple[Any, Bucket]]:
        """The run is open, its tap starts: the bucket is as the log says."""
        yield None, replace(self, settled=max(self.settled, n))

    def _report(self, n: int, done: bool) -> Iterator[tuple[Any, Bucket]]:
        """The STATE of commit `n` is printed; `done`: its epoch is."""
        after = self._with_seen(n)
        yield None, replace(after, settled=max(self.settled, n)) if done else after

    def _with_seen(self, n: int) -> Bucket:
        if not n:
            return self
        early = n == last_change(self.log) and not self._visible().items() >= live(self.log).items()
        broken = "a STATE was seen before its rows" if early else self.broken
        return replace(self, seen=self.seen | {n}, broken=broken)

    def _close(self, n: int) -> Iterator[tuple[Any, Bucket]]:
        yield None, replace(self, closed=max(self.closed, n))

    # what happens by itself

    def events(self) -> Iterator[tuple[str, Bucket]]:
        """A put whose sender has given up lands; an unfinished upload is purged."""
        for key, data in self.flying:
            landed = self if key in self.objects else self._after_put(key, data)
            yield f"the put of {key} lands late", replace(landed, flying=())
        if self.purges:
            for upload in sorted(self.uploads):
                after = replace(self._without(upload), purges=self.purges - 1, purged=True)
                yield f"the upload {upload} is purged", after

    def quiet(self) -> Bucket:
        """The bucket if nothing goes wrong with it any more."""
        return replace(self, flying=(), purges=0, losses=0)

    # what must be true

    def _visible(self) -> dict[str, bytes]:
        there = self.objects.items()
        return {key.removeprefix(f"{FOLDER}/"): one.data for key, one in there if key.startswith(f"{FOLDER}/")}

    def wrong(self) -> str:
        """The promise that is broken, or nothing."""
        if self.broken:
            return self.broken
        records = [record_of(data) for data in self.log]
        if [record.n for record in records] != [*range(1, len(records) + 1)]:
            return "the log has a gap"
        voided = {record.voids for record in records if record.voids is not None}
        if voided & self.seen:
            return "a STATE was seen, and its commit taken back"
        if voided and not self.purged:
            return "a commit was taken back though nothing was purged"
        if any(record.kind == "state" for record in records):
            return "what a run wrote into state.json was taken for an edit by hand"
        if not all(self._was_removed(key, one.data) for key, one in self.objects.items() if key.startswith(_TRASH)):
            return "the trash has bytes that its commit did not replace"
        if not covered(self.log, self.overwrite, self.repeats):
            return "the STATE does not cover the rows that the log names, each once"
        return self._unsettled() if self.settled == last_change(self.log) else ""

    def _was_removed(self, key: str, data: bytes) -> bool:
        number, _, name = key.removeprefix(_TRASH).removesuffix(".removed").split("/", 2)
        return live(self.log[: int(number) - 1]).get(name) == data

    def _unsettled(self) -> str:
        named, visible = live(self.log), self._visible()
        if not visible.items() >= named.items():
            return "rows that the STATE covers are not visible"
        if visible.keys() - named.keys():
            return "a file is visible that no commit names"
        manifest = self.objects.get(MANIFEST, Object(b"")).data.split()
        if manifest != sorted(f"s3://b/{FOLDER}/{name}".encode() for name in named):
            return "the manifest is not what the log says"
        state = self.objects.get(STATE, Object(b"null")).data
        if loads(state) != (record_of(self.log[-1]).state if self.log else None) and not (self.late and self.repeats):
            return "state.json is not what the log says"
        return ""


@cache
def covered(log: Log, overwrite: bool, repeats: int) -> bool:
    """Whether the table's files are those of the loads that the STATE covers; with `overwrite`, of the last."""
    parts = [part_of(len(data)) for data in live(log).values()]
    state, last = (record_of(log[-1]).state if log else None), max((load for _, load in parts), default=0)
    if (state["load"] if state else 0) != said(last, repeats):
        return False
    whole = [load for part, load in parts if is_over(part)]
    begun = {part for part, _ in parts if not is_over(part)}
    first = 1
    if whole:  # the table's first load had a file to rewrite, and no other
        if set(whole) != {last}:
            return False
        first = 2
    loads_ = [last] if overwrite and last else [*range(first, last + 1)]
    return all(sorted(load for one, load in parts if one == part) == loads_ for part in begun)
