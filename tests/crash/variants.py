"""Parts of the commit protocol left out or done wrong: patches of the real code, for the explorer to see through.

The tests show that each of `BROKEN` loses, doubles or hides something, and that those of `HARMLESS` only cost work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from msgspec import structs

from bridge.errors import CommitLost, LakeError
from bridge.exact_json import dumps
from bridge.lake.commit import cleanup, state_file
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.head import Head
from bridge.lake.commit.manifests import listed_files, manifest_body
from bridge.lake.log import Log, Snapshot, add_of, undo
from bridge.lake.ownership import Owner
from bridge.lake.paths import pipeline_key
from bridge.lake.records import CommitRecord, TableChange
from bridge.lake.storage.objects import publish as phases
from bridge.lake.storage.objects.store import Headers
from bridge.lake.storage.protocol import Change, Missing, Remove
from bridge.lake.storage.s3.errors import FAILURES, is_refused
from bridge.lake.storage.s3.store import S3Store

from .lives import Life, loaded, one_by_one
from .store import MANIFEST

CREATE, PUBLISH, LOOK_ALL = Committer.create, Committer.publish, Head.look_all


@dataclass(frozen=True)
class Variant:
    """What is done wrong, in words, and by which patches, each under the name of what it replaces."""

    what: str
    patches: dict[str, Any] = field(default_factory=dict)
    life: type[Life] = Life

    @contextmanager
    def applied(self) -> Iterator[type[Life]]:
        """Have runs do it wrong for a while."""
        with ExitStack() as stack:
            for name, wrong in self.patches.items():
                stack.enter_context(mock.patch(f"bridge.lake.{name}", wrong))
            yield self.life


# steps 0 and 3


def _abort_unnamed(committer: Committer) -> None:
    records = [committer.log.record(n) for n in range(1, committer.snapshot.n + 1)]
    named = {add.source for record in records if record for change in record.tables for add in change.adds}
    for pending in list(committer.storage.pending(pipeline_key(committer.log.pipeline, "pending"))):
        if (pending.upload or pending.source) not in named:
            committer.storage.abort(pending)


def _aborts_first(self: Committer, kind: str, *args: Any, **facts: Any) -> Any:
    if kind == "fence":
        _abort_unnamed(self)
    return CREATE(self, kind, *args, **facts)


def _aborts_unnamed(self: Committer, kind: str, *args: Any, **facts: Any) -> Any:
    record = CREATE(self, kind, *args, **facts)
    if kind == "fence":
        _abort_unnamed(self)
    return record


def _no_fence(self: Committer, kind: str, *args: Any, **facts: Any) -> Any:
    return None if kind == "fence" else CREATE(self, kind, *args, **facts)


def _rebases(self: Committer, *args: Any, **facts: Any) -> Any:
    try:
        return CREATE(self, *args, **facts)
    except CommitLost:
        others = self.log.record(self.snapshot.n + 1)
        assert others
        self.head.snapshot = self.snapshot.after(others)
    return _rebases(self, *args, **facts)


def _clean_up(committer: Committer, tables: Sequence[TableChange]) -> None:
    for add in [add_of(change.folder, add) for change in tables for add in change.adds]:
        committer.storage.abort(add)


def _never_reads_back(self: Committer, kind: str, state: Any, *, tables: Any = (), **facts: Any) -> CommitRecord:
    record = self._record(kind, state, tables, facts)  # type: ignore[arg-type]
    created, after = self.log.create(self.snapshot, record)
    if not created:
        raise CommitLost("another run committed first", hint="")
    self.head.snapshot = after
    return record


def _no_nonce(self: Committer, kind: str, state: Any, *, tables: Any = (), **facts: Any) -> CommitRecord:
    try:
        return _never_reads_back(self, kind, state, tables=tables, **facts)
    except LakeError:
        _clean_up(self, tables)
        raise


def _aborts_after_unknown(self: Committer, kind: str, state: Any, *, tables: Any = (), **facts: Any) -> CommitRecord:
    try:
        return CREATE(self, kind, state, tables=tables, **facts)
    except CommitLost:
        raise
    except LakeError:
        _clean_up(self, tables)
        raise


def _put_twice(bucket: S3Store, key: str, data: bytes, etag: str | None) -> str | None:
    condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
    for _ in range(2):
        try:
            return str(bucket.once.put_object(Body=data, **bucket.at(key), **condition)["ETag"])
        except FAILURES as error:
            if is_refused(error):
                return None
    raise LakeError("it is not known whether an object was written", hint="")


# step 1


def _void_without_aborts(*args: Any) -> list[TableChange]:
    return [structs.replace(change, aborts=()) for change in undo(*args)]


def _look_without_head(head: Head) -> state_file.StateFile:
    return state_file.read_state_file(head.storage, head.log.pipeline)


def _abort_all_older(log: Log, snapshot: Snapshot, generation: int, *, fenced: bool) -> None:
    del fenced
    for pending, _ in list(cleanup.stale_pending(log, snapshot, generation)):
        log.storage.abort(pending)


# steps 4 and 5


class _TwoCommits(Life):
    def load(self, committer: Committer) -> None:
        state, tables = self.epoch(committer)
        records = [committer.create("data", state, tables=tables)]
        if loaded(committer) < self.world.last:
            state, tables = self.epoch(committer)
            records.append(committer.create("data", state, tables=tables))
        for record in records:
            committer.publish(record)
        committer.write_state()


def _reports_first(self: Committer, record: CommitRecord) -> None:
    Life.current.ask("report", record.n, False)
    PUBLISH(self, record)


def _state_plainly(head: Head) -> list[str]:
    head.check()
    Life.current.shows = head.snapshot.last_change
    data = dumps(head.snapshot.state, indent=2)
    head.storage.write(state_file.state_key(head.log.pipeline), data)
    state_file.note_published(head, data)
    return []


def _witness_first(head: Head) -> list[str]:
    data = dumps(head.snapshot.state, indent=2)
    state_file.note_published(head, data)
    while not head.swap(state_file.state_key(head.log.pipeline), data):
        head.look(state_file.state_key(head.log.pipeline))
    return []


def _witness_last(head: Head) -> state_file.StateFile:
    data = head.look(state_file.state_key(head.log.pipeline))
    return state_file.StateFile(data, head.look(state_file._witness_key(head.log.pipeline)))


def _manifest_plainly(head: Head, streams: Mapping[str, bool]) -> None:
    ((stream, shared),) = streams.items()
    table = head.snapshot.tables[stream]
    names = listed_files(head.storage, Owner(head.log.pipeline, stream), table, shared=shared)
    head.storage.write(MANIFEST, manifest_body(head.storage, table.folder, names))


def _look_at_version_only(self: Head, keys: Sequence[str]) -> list[bytes | None]:
    if MANIFEST not in keys:
        return LOOK_ALL(self, keys)
    stored = [self.storage.read_versioned(key) for key in keys]
    self._versions |= {key: each.etag if each else None for key, each in zip(keys, stored, strict=True)}
    return [each.data if each else None for each in stored]


# the storage's publish


@dataclass(frozen=True)
class _Publish:
    """`publish` with its phases in another order; of the pending files' sources it drops those that `drops` says."""

    order: str
    drops: Callable[[str], bool] = lambda _source: True

    def __call__(self, bucket: S3Store, changes: Sequence[Change]) -> None:
        adds = [add for change in changes for add in change.adds]
        removes = [remove for change in changes for remove in change.removes]
        targets = [
            *(phases._Target(add) for add in adds),
            *(phases._Target(o.add, o.trash) for o in phases._rewrites(changes)),
        ]
        looks = one_by_one(bucket, lambda one: phases._look(bucket, one), targets)
        if None in looks:
            raise Missing([one.add.key for one, status in zip(targets, looks, strict=True) if status is None])
        pending = [status for status in looks if not status.visible]
        for phase in self.order.split():
            if phase == "aborts":
                one_by_one(bucket, bucket.abort, [a for c in changes for a in c.aborts])
            elif phase == "old":
                kept = one_by_one(bucket, lambda status: phases._keep_old(bucket, status), pending)
                pending = [status for status in kept if not status.visible]
            elif phase == "late":
                one_by_one(bucket, lambda status: _keep_too_late(bucket, status), pending)
            elif phase == "show":
                one_by_one(bucket, lambda status: phases._show(bucket, status), pending)
            elif phase == "keep":
                one_by_one(bucket, lambda remove: phases._keep(bucket, remove), removes)
            elif phase == "go":
                one_by_one(bucket, lambda remove: _remove(bucket, remove), removes)
            else:
                sources = [add.source for add in adds if not add.upload and self.drops(add.source)]
                one_by_one(bucket, bucket.delete, sources)


def _remove(bucket: S3Store, remove: Remove) -> None:
    bucket.delete(remove.key)


def _keep_too_late(bucket: S3Store, status: Any) -> None:
    if status.target.trash and status.old:
        try:
            bucket.copy(status.target.add.key, status.target.trash, status.old.size, status.old.etag)
        except FAILURES:
            return


def _visible_first(bucket: S3Store, target: Any) -> Any:
    seen = bucket.head(target.add.key)
    if target.is_there(seen):
        return phases._Status(target, [], visible=True)
    old = bucket.head(target.add.key) if target.trash else None
    parts = bucket.pending_parts(target.add)
    return None if parts is None else phases._Status(target, parts, old=old)


def _is_there_by_name(_: Any, seen: Headers | None) -> bool:
    return seen is not None


def _keep_whatever(bucket: S3Store, status: Any) -> Any:
    if status.target.trash and status.old:
        bucket.copy(status.target.add.key, status.target.trash, status.old.size)
    return status


def _settle_without_aborts(bucket: S3Store, changes: Sequence[Change]) -> list[Any]:
    return [
        one
        for one in phases._rewrites(changes)
        if phases._Target(one.add, one.trash).is_there(bucket.head(one.add.key))
    ]


def _trash(source: str) -> bool:
    return "/trash/" in source


_CREATE = "commit.committer.Committer.create"
_S3_PUBLISH = "storage.objects.publish.publish"

BROKEN = {
    "abort before the fence": Variant(
        "recovery aborts what no commit names, and only then creates its fence", {_CREATE: _aborts_first}
    ),
    "abort whatever no commit names": Variant("recovery does not look at generations", {_CREATE: _aborts_unnamed}),
    "no fence": Variant("a run that found an unclosed lake starts without a fence of its own", {_CREATE: _no_fence}),
    "no roll forward": Variant(
        "recovery leaves the last commit as it is", {"commit.recovery._roll_forward": lambda *_: None}
    ),
    "remove before add": Variant(
        "publish takes old files away before the new ones are visible",
        {_S3_PUBLISH: _Publish("aborts keep go old show drop")},
    ),
    "trash before add": Variant(
        "publish copies old files to the trash first, and leaves there what a void brings back",
        {_S3_PUBLISH: _Publish("aborts keep old show drop go", lambda source: not _trash(source))},
    ),
    "void without aborts": Variant(
        "a void removes what is visible and leaves the rest pending", {"commit.recovery.undo": _void_without_aborts}
    ),
    "void removes before it aborts": Variant(
        "a file that becomes visible between the two stays", {_S3_PUBLISH: _Publish("old show keep drop go aborts")}
    ),
    "visible before pending": Variant(
        "publish looks at the key first: what becomes visible meanwhile is in neither place",
        {"storage.objects.publish._look": _visible_first},
    ),
    "source stays": Variant(
        "publish leaves the source of a small file where it was",
        {_S3_PUBLISH: _Publish("aborts old show keep drop go", _trash)},
    ),
    "rebase": Variant("who loses n takes n + 1", {_CREATE: _rebases}),
    "no nonce": Variant(
        "a put whose answer was lost is sent again, and a 412 taken for somebody else's commit: cleaned up",
        {_CREATE: _no_nonce, "storage.objects.storage.put_if": _put_twice},
    ),
    "abort after an unknown put": Variant(
        "a commit that is not there yet is taken for lost: its files are cleaned up", {_CREATE: _aborts_after_unknown}
    ),
    "n + 1 before n is published": Variant("two commits, then both are published", life=_TwoCommits),
    "report before publish": Variant(
        "the STATE is printed once the commit exists", {"commit.committer.Committer.publish": _reports_first}
    ),
    "state.json written plainly": Variant(
        "after a look whether n is still the head", {"commit.committer.write_state": _state_plainly}
    ),
    "the witness before state.json": Variant(
        "a kill between the two leaves an earlier STATE that no witness knows",
        {"commit.committer.write_state": _witness_first},
    ),
    "state.json looked at before the witness": Variant(
        "a slow run writes both between the two looks", {"commit.recovery.look_at_state_file": _witness_last}
    ),
    "a late STATE is an edit": Variant(
        "a run that slept until the STATE came back is taken for a person",
        {"commit.state_file._is_late": lambda *_: False},
    ),
    "manifest written plainly": Variant("without any look", {"commit.committer.write_manifests": _manifest_plainly}),
    "missing without the head": Variant(
        "recovery takes a file for lost, and not for taken away by who took over",
        {"commit.recovery.look_at_state_file": _look_without_head},
    ),
    "trash of whatever is there": Variant(
        "the copy of what a file is about to replace does not ask for what was seen there",
        {"storage.objects.publish._keep_old": _keep_whatever},
    ),
    "rewritten if it is there": Variant(
        "whether a file was rewritten is not told by what it was made of",
        {"storage.objects.publish._Target.is_there": _is_there_by_name},
    ),
    "rewrite before trash": Variant(
        "new bytes first, then the old ones are not there any more to be kept",
        {_S3_PUBLISH: _Publish("aborts show late keep drop go")},
    ),
    "void without settling": Variant(
        "a void takes each rewriting for one that did not happen", {"commit.recovery._settled": lambda *_: {}}
    ),
    "settle without aborts": Variant(
        "a void looks which files are rewritten, and lets a slow writer rewrite the others",
        {"storage.objects.publish.settle_rewrites": _settle_without_aborts},
    ),
    "abort what is to replace a file": Variant(
        "recovery does not look whether it was followed, and takes uploads for old ones",
        {"commit.open.abort_older": _abort_all_older},
    ),
    "version without the head": Variant(
        "the manifest's version is read, but not whether anybody took over before that",
        {"commit.head.Head.look_all": _look_at_version_only},
    ),
}

HARMLESS = {
    "no verify": Variant(
        "a commit may name a file that was purged before: it is taken back by the next run",
        {"commit.committer.Committer._verify": lambda *_: None},
    ),
    "a 412 ends the run": Variant(
        "a run takes its own commit for another's, and dies: the next run rolls it forward",
        {_CREATE: _never_reads_back, "storage.objects.storage.put_if": _put_twice},
    ),
}
