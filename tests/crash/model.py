"""The commit protocol as a model: each method is named after the one of bridge/commit/committer.py it stands for.

A run is a generator that yields the one thing it asks of the bucket next, and is sent the answer; between two of its
requests everybody else may act. `bucket.py` says what a request does, `explorer.py` tries every order of them. The
publish is that of a bucket without folders: uploads that are completed, small files that are copied, no renames.

What `broken` names is left out or done wrong: see `BROKEN`. The tests show that each of these loses, doubles or hides
something, or (`HARMLESS`) only costs a commit that has to be taken back.

Assumed: a request is done at once or not at all, whenever that is; an answer may be lost (of a put here, of any other
request that is the same as a kill after it). Left out, as it changes no order: staged and rejected rows, more tables
than one, the deletion of old records. The lease protects nobody here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from .bucket import Bucket, File, Log, Record, last_change, live, named_in, record_at, said, state_of

BROKEN = {
    "abort before the fence": "recovery aborts what no commit names, and only then creates its fence",
    "abort whatever no commit names": "recovery does not look at generations",
    "no fence": "a run that found an unclosed lake starts without a fence of its own",
    "no roll forward": "recovery leaves the last commit as it is",
    "remove before add": "publish takes old files away before the new ones are visible",
    "trash before add": "publish copies old files to the trash first, and leaves there what a void brings back",
    "void without aborts": "a void removes what is visible and leaves the rest pending",
    "void removes before it aborts": "a file that becomes visible between the two stays",
    "visible before pending": "publish looks at the key first: what becomes visible meanwhile is in neither place",
    "source stays": "publish leaves the source of a small file where it was",
    "rebase": "who loses n takes n + 1",
    "no nonce": "a put whose answer was lost is sent again, and a 412 taken for somebody else's commit: cleaned up",
    "abort after an unknown put": "a commit that is not there yet is taken for lost: its files are cleaned up",
    "n + 1 before n is published": "two commits, then both are published",
    "report before publish": "the STATE is printed once the commit exists",
    "state.json written plainly": "after a look whether n is still the head",
    "manifest written plainly": "without any look",
    "missing without the head": "recovery takes a file for lost, and not for taken away by who took over",
    "the same bytes twice": "a STATE that comes back is written in the same bytes: a version is no more than these",
    "trash of whatever is there": "the copy of what a file is about to replace does not ask for what was seen there",
    "rewritten if it is there": "whether a file was rewritten is not told by what it was made of",
    "rewrite before trash": "new bytes first, then the old ones are not there any more to be kept",
    "void without settling": "a void takes each rewriting for one that did not happen",
    "settle without aborts": "a void looks which files are rewritten, and lets a slow writer rewrite the others",
    "abort what is to replace a file": "recovery does not look whether it was followed, and takes uploads for old ones",
    "version without the head": "the manifest's version is read, but not whether anybody took over before that",
}
"""The variants that break a promise, each with what it does."""

HARMLESS = {
    "no verify": "a commit may name a file that was purged before: it is taken back by the next run",
    "a 412 ends the run": "a run takes its own commit for another's, and dies: the next run rolls it forward",
}
"""Variants that break no promise about rows: what they cost is said here."""

Steps = Generator[Any, Any, Any]
UNKNOWN = "unknown"
"""The version of a file that this run has not looked at."""


@dataclass(frozen=True)
class World:
    """What is tried: `runs` altogether, `alive` at once, each makes `loads` commits at most until the source's `last`.

    `purges` uploads vanish, the answers to `losses` puts are lost. With `overwrite` a load replaces all earlier ones.
    The tap's STATE is another one after each load, or the same again after `repeats` of them.
    """

    runs: int = 2
    alive: int = 2
    last: int = 1
    loads: int = 1
    parts: tuple[str, ...] = ("upload",)
    overwrite: bool = False
    purges: int = 0
    losses: int = 0
    repeats: int = 0
    """With a part `over` each load gives a file that is there new bytes: all rows so far."""

    def bucket(self) -> Bucket:
        """Return a new bucket; for an overwrite, one with a first load in it."""
        trouble = {"purges": self.purges, "losses": self.losses, "repeats": self.repeats}
        if not self.overwrite and "over" not in self.parts:
            return Bucket(False, **trouble)
        first = File(1, "over" if "over" in self.parts else self.parts[-1], 0, 0)
        files, log = frozenset({first}), (Record("data", 0, 1, (first,)),)
        manifest = named_in(files)
        return Bucket(
            self.overwrite, log, frozenset(), files, manifest=manifest, state=(1, 1), closed=1, settled=1, **trouble
        )


class Stop(Exception):
    """The run ends without closing cleanly; its argument is why."""


class Missing(Exception):
    """As in bridge/storage/protocol.py."""


class Committer:
    """One run, from its opening to its end. All it knows is hashable and in its attributes or its frames' locals."""

    def __init__(self, run: int, world: World, broken: str) -> None:
        self.run, self.world, self.broken = run, world, broken
        self.view: Log = ()
        self.generation = 0
        self.versions: tuple[Any, Any] = (UNKNOWN, UNKNOWN)  # of the manifest and of state.json

    def life(self) -> Steps:
        """Open, load what the source still has, `loads` commits at most, and close."""
        yield from self.open()
        end = min(self.world.last, state_of(self.view) + self.world.loads)
        while state_of(self.view) < end:
            yield from self.load()
        yield "close", len(self.view)

    # step 0 and 3

    def open(self) -> Steps:
        """`Committer.__init__`. Whether the lease says `closed` at the head is a guess: it may be stale or lost."""
        self.view, clean = yield ("head",)
        self.generation = len(self.view) if clean else len(self.view) + 1
        if clean:
            yield from self._check_state_file(recovering=False)
        else:
            if self.broken == "abort before the fence":
                yield from self._abort_unnamed()
            if self.broken != "no fence":
                yield from self._create(Record("fence", self.run, state_of(self.view)))
            if self.broken == "abort whatever no commit names":
                yield from self._abort_unnamed()
            yield from self._recover()
        yield from self._abort_older(fenced=not clean)
        yield "started", self.view

    def _create(self, record: Record) -> Steps:
        created = yield ("put_if_absent", len(self.view) + 1, record)
        if created is None and self.broken == "no nonce":
            created = yield ("put_if_absent", len(self.view) + 1, record)
        elif created is None:
            created = yield from self._read_back(record)
        if not created:
            yield from self._lost(record)
        self.view = (*self.view, record)

    def _read_back(self, record: Record) -> Steps:
        there = yield ("read", len(self.view) + 1)
        if there is None:
            if self.broken == "abort after an unknown put":
                yield from self._clean_up(record.adds)
            raise Stop("unknown")
        return there == record and self.broken != "a 412 ends the run"

    def _lost(self, record: Record) -> Steps:
        """Raise unless the record that is there is ours."""
        there = yield ("read", len(self.view) + 1)
        if self.broken == "no nonce":
            yield from self._clean_up(record.adds)
            raise Stop("lost")
        if self.broken == "a 412 ends the run":
            raise Stop("lost")
        if self.broken == "rebase" and there != record:
            self.view = (*self.view, there)
            yield from self._create(record)
            self.view = self.view[:-1]
        elif there != record:
            raise Stop("lost")

    def _clean_up(self, files: tuple[File, ...]) -> Steps:
        for file in files:
            yield "abort", file

    # step 1

    def _recover(self) -> Steps:
        record = record_at(self.view, last_change(self.view))
        if record is not None and self.broken != "no roll forward":
            yield from self._roll_forward(record)
        yield from self._check_state_file(recovering=True)

    def _roll_forward(self, record: Record) -> Steps:
        try:
            yield from self._publish(record)
            return
        except Missing:
            pass
        if self.broken == "missing without the head":
            self._know(1, (yield ("fetch", "state.json")))
        else:
            yield from self._look(1)
        if record.kind == "void":
            raise Stop("corrupt: a file of the lake is gone")
        yield from self._void(record)

    def _void(self, record: Record) -> Steps:
        n = last_change(self.view)
        before = self.view[: n - 1]
        there = self.versions[1][0]
        if there == self._said(record) != self._said(record_at(before, len(before))):
            raise Stop("corrupt: a committed file is gone")
        aborts = () if self.broken == "void without aborts" else record.adds
        adds, still = record.removes, ()
        for file in record.rewrites:
            done = yield from self._settle(file)
            old = next(old for old in adds if old.name == file.name)
            if done:  # its old bytes come back from the trash, under a name that no file ever had
                adds = tuple(old._replace(slot=n) if one == old else one for one in adds)
            else:
                still += (file, old)
        void = Record("void", self.run, state_of(before), adds, record.adds, aborts, voids=n, still=still)
        yield from self._create(void)
        yield from self._roll_forward(void)

    def _settle(self, file: File) -> Steps:
        """Have a file not be rewritten any more, and return whether it is."""
        if self.broken == "void without settling":
            return False
        if self.broken != "settle without aborts":
            yield "abort", file
        return (yield ("at", file)) == file

    def _check_state_file(self, *, recovering: bool) -> Steps:
        yield from self._look(1)
        there, head = self.versions[1][0], self._said(record_at(self.view, len(self.view)))
        if there == head:
            if there and recovering:  # the same STATE, but maybe not the same bytes
                yield from self._write_state()
        elif there == 0 or (recovering and there == self._state_before(head)):
            yield from self._write_state()
        elif any(self._said(record) == there for record in self.view):
            raise Stop("refused: state.json is older than the lake")
        else:
            yield from self._create(Record("state", self.run, there))

    def _state_before(self, head: int) -> int:
        below = len(self.view) + 1
        for n in range(len(self.view), 0, -1):
            record = self.view[n - 1]
            if record.kind != "fence" and n < below and self._said(record) != head:
                return self._said(record)
            below = min(below, record.voids or below)
        return 0

    def _said(self, record: Record | None) -> int:
        """Return the STATE as it is written, which may be the same for several loads."""
        return said(record.state, self.world.repeats) if record else 0

    def _abort_older(self, *, fenced: bool) -> Steps:
        """An upload that is to replace a file has its name, which says nothing of the upload's own generation."""
        pending = yield ("pending_files",)
        all_older = self.broken == "abort what is to replace a file"
        if fenced and any(file.part == "over" for file in pending) and not all_older:
            all_older = (yield ("read", len(self.view) + 1)) is None
        for file in sorted(pending):
            if all_older if file.part == "over" else file.generation < self.generation:
                yield "abort", file

    def _abort_unnamed(self) -> Steps:
        """What a recovery without generations would do, after which it has an empty room."""
        named = frozenset(file for record in self.view for file in record.adds)
        pending = yield ("pending_files",)
        for file in sorted(pending - named):
            yield "abort", file

    # steps 2 to 6

    def load(self) -> Steps:
        """One epoch: its pending files, the commit, the report. The source's next load is the one after the STATE."""
        record = yield from self._epoch()
        if self.broken == "n + 1 before n is published" and record.state < self.world.last:
            yield from self._create(record)
            first, record = record, (yield from self._epoch())
            yield from self._create(record)
            yield from self._publish(first)
            yield from self._publish(record)
            yield from self._write_state()
        else:
            yield from self.commit(record)
        yield "report", len(self.view), self.view

    def _epoch(self) -> Steps:
        number = state_of(self.view) + 1
        old = tuple(sorted(file for file in live(self.view) if self.world.overwrite or file.part == "over"))
        slot = next((file.slot for file in old if file.part == "over"), 0)
        adds = tuple(
            File(number, part, self.generation, self.run, slot * (part == "over")) for part in self.world.parts
        )
        yield "write_pending", adds
        rewrites = tuple(file for file in adds if file.part == "over")
        return Record("data", self.run, number, adds, old, rewrites=rewrites, still=old if rewrites else ())

    def commit(self, record: Record) -> Steps:
        yield from self._verify(record)
        yield from self._create(record)
        if self.broken == "report before publish":
            yield "report", len(self.view), ()
        try:
            yield from self._publish(record)
            lost = False
        except Missing:
            lost = True
        if lost:
            yield from self._check_head()
            raise Stop("a pending file is gone")
        yield from self._write_state()

    def _verify(self, record: Record) -> Steps:
        if (yield ("lost", record.adds)) and self.broken != "no verify":
            yield from self._check_head()
            raise Stop("a pending file is not what was written")

    def _publish(self, record: Record) -> Steps:
        yield from self._storage_publish(record)
        if self.broken == "manifest written plainly":
            yield "write", "manifest", named_in(live(self.view)), 0
        else:
            yield from self._swap(0, named_in(live(self.view)))

    def _write_state(self) -> Steps:
        """The bytes tell whose they are: else a run that slept would not see that the same STATE came back."""
        n = last_change(self.view)
        data = (self._said(record_at(self.view, n)), 0 if self.broken == "the same bytes twice" else n)
        if self.broken == "state.json written plainly":
            if (yield ("read", len(self.view) + 1)) is None:
                yield "write", "state.json", data, n
        else:
            yield from self._swap(1, data)

    def _swap(self, which: int, data: Any) -> Steps:
        """What somebody else wrote there meanwhile is looked at once more; `_look` ends the run if he took over."""
        if self.versions[which] == UNKNOWN:
            yield from self._look(which)
        while not (yield ("swap", _NAMES[which], data, self.versions[which], last_change(self.view))):
            yield from self._look(which)
            if _NAMES[which] == "state.json":
                raise Stop("refused: it seems that state.json was edited by hand")
        self._know(which, data)

    def _look(self, which: int) -> Steps:
        self._know(which, (yield ("fetch", _NAMES[which])))
        if self.broken != "version without the head" or _NAMES[which] != "manifest":
            yield from self._check_head()

    def _know(self, which: int, version: Any) -> None:
        self.versions = (version, self.versions[1]) if which == 0 else (self.versions[0], version)

    def _check_head(self) -> Steps:
        if (yield ("read", len(self.view) + 1)) is not None:
            raise Stop("lost")

    # the storage's publish: adds that a void brings back come from the trash

    def _storage_publish(self, record: Record) -> Steps:
        n = self.view.index(record) + 1
        source = f"trash/{record.voids}" if record.kind == "void" else "pending"
        found: tuple[File, ...] = ()
        for file in _moved(record, record.adds):
            found += (file,) * (yield from self._is_pending(file, source))
        coming: tuple[tuple[File, File | None], ...] = ()
        for file in record.rewrites:
            coming += yield from self._look_for_rewrite(file)
        if self.broken != "void removes before it aborts":
            yield from self._clean_up(record.aborts)
        if self.broken in ("trash before add", "remove before add"):
            yield from self._keep(n, record)
        if self.broken == "remove before add":
            yield from self._remove(record)
        if self.broken != "rewrite before trash":
            coming = yield from self._keep_old(n, coming)
        for file in (*(file for file, _ in coming), *found):
            yield from self._bring_in(file, source)
        if self.broken == "rewrite before trash":
            yield from self._keep_old(n, coming)
        yield from self._keep(n, record)
        left = {"source stays": "pending", "trash before add": f"trash/{record.voids}"}.get(self.broken)
        for file in _moved(record, record.adds):
            if source != left and (file.part == "small" or source != "pending"):
                yield "drop", file, source  # once more it would be copied after a later commit removed the file
        yield from self._remove(record)
        if self.broken == "void removes before it aborts":
            yield from self._clean_up(record.aborts)

    def _keep(self, n: int, record: Record) -> Steps:
        for file in _moved(record, record.removes):
            yield "keep", file, n

    def _remove(self, record: Record) -> Steps:
        for file in _moved(record, record.removes):
            yield "remove", file

    def _look_for_rewrite(self, file: File) -> Steps:
        """Return the file, if it is pending, and what is there; nothing if it is rewritten."""
        seen = yield ("at", file)
        if (yield ("has", "pending", file)):
            return ((file, seen),)
        there = yield ("at", file)
        if there != file and self.broken != "rewritten if it is there":
            raise Missing
        return ()

    def _keep_old(self, n: int, coming: tuple[tuple[File, File | None], ...]) -> Steps:
        """Copy to the trash what is about to be replaced; return what is left to be rewritten after that."""
        left: tuple[tuple[File, File | None], ...] = ()
        for file, seen in coming:
            if self.broken == "trash of whatever is there":
                yield "keep", file, n
            elif not (yield ("keep_old", file, seen, n)) and self.broken != "rewrite before trash":
                if (yield from self._look_for_rewrite(file)):
                    raise Stop("refused: a file was changed by somebody")
                continue
            left += ((file, seen),)
        return left

    def _is_pending(self, file: File, source: str) -> Steps:
        """Raise `Missing` if the file is nowhere. In this order, whoever makes it visible between the looks is seen."""
        if self.broken == "visible before pending" and (yield ("has", "visible", file)):
            return False
        if (yield ("has", source, file)):
            return True
        if self.broken == "visible before pending" or not (yield ("has", "visible", file)):
            raise Missing
        return False

    def _bring_in(self, file: File, source: str) -> Steps:
        """Complete or copy. Whatever is wrong with that, what counts is whether the file is there now."""
        if not (yield ("show", file, source)) and not (yield ("has", "visible", file)):
            raise Missing


def _moved(record: Record, files: tuple[File, ...]) -> tuple[File, ...]:
    """Return those of a commit's files that become visible, or go, by themselves."""
    return tuple(file for file in files if file not in record.rewrites and file not in record.still)


_NAMES = ("manifest", "state.json")
