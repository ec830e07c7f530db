"""The loader done wrong, for schedules to find: parts of the commit protocol, as the explorer leaves them out, and
of the load before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from bridge.exact_json import dumps
from bridge.lake.commit import state_file
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.head import Head
from bridge.lake.commit.manifests import listed_files, manifest_body, manifest_keys
from bridge.lake.ownership import Owner
from bridge.lake.records import CommitRecord
from bridge.load.run.dispatcher import Dispatcher
from bridge.load.run.loader import Loader
from bridge.load.spool.spool import Spool
from tests.crash.variants import BROKEN, HARMLESS, Variant

from .bucket import Fault
from .schedule import Life, Schedule
from .source import Source

LOOK_ALL, SEAL, END, STEP = Head.look_all, Spool.seal, Dispatcher.end, Loader._step
_COMMIT = "bridge.lake.commit"
_GOES, _SLEEPS, _MERGED, _REPLACED = "an upload goes", "sleeps", "u", "tuv"


@dataclass(frozen=True)
class Wrong:
    """What is done wrong, in words, and by which patches, each under the name of what it replaces."""

    what: str
    patches: Mapping[str, Any]
    streams: str = ""
    """It takes one of these streams to see it."""
    fault: str = ""
    """It takes such a fault."""

    @classmethod
    def of(cls, variant: Variant, streams: str = "", fault: str = "") -> Wrong:
        """One of the explorer's."""
        patches = {f"bridge.lake.{name}": wrong for name, wrong in variant.patches.items()}
        return cls(variant.what, patches, streams, fault)

    def suits(self, schedule: Schedule) -> bool:
        """Whether a schedule may see it."""
        kinds = [fault.kind for life in schedule.lives for fault in life.faults]
        return (not self.streams or bool({*self.streams} & {*schedule.source.streams})) and (
            not self.fault or any(self.fault in kind for kind in kinds)
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Have runs do it wrong for a while."""
        with ExitStack() as stack:
            for name, wrong in self.patches.items():
                stack.enter_context(mock.patch(name, wrong))
            yield


def _state_first(self: Committer, record: CommitRecord, publish: Any = Committer.publish) -> None:
    self.write_state()
    publish(self, record)


def _state_plainly(head: Head) -> list[str]:
    head.check()
    data = dumps(head.snapshot.state, indent=2)
    head.storage.write(state_file.state_key(head.log.pipeline), data)
    state_file.note_published(head, data)
    return []


def _manifest_plainly(head: Head, streams: Mapping[str, bool]) -> None:
    for stream, shared in streams.items():
        table = head.snapshot.tables[stream]
        names = listed_files(head.storage, Owner(head.log.pipeline, stream), table, shared=shared)
        for key in manifest_keys(table.folder):
            head.storage.write(key, manifest_body(head.storage, table.folder, names))


def _look_at_version_only(self: Head, keys: Any) -> list[bytes | None]:
    if not any(key.endswith("manifest") for key in keys):
        return LOOK_ALL(self, keys)
    stored = [self.storage.read_versioned(key) for key in keys]
    self._versions |= {key: each.etag if each else None for key, each in zip(keys, stored, strict=True)}
    return [each.data if each else None for each in stored]


def _seals_all(self: Spool, *, tasks: int, all_lines: bool = False) -> Any:
    return SEAL(self, tasks=tasks, all_lines=True)


def _always_clean(self: Dispatcher, *, clean: bool) -> Any:
    return END(self, clean=True)


def _none(*_: Any) -> None:
    return None


def _always(*_: Any) -> bool:
    return True


def _waits_for_no_batch(self: Loader) -> bool:
    sealed = self._waiting[0] if self._waiting else None
    if not self._preparing and sealed and sealed.batch and not self._finished and sealed.barrier:
        self._prepare(sealed.barrier)
        self._waiting.popleft()
        return True
    return STEP(self)


_ADAPTED = {
    "report before publish": Wrong(
        "state.json is written once the commit exists", {f"{_COMMIT}.committer.Committer.publish": _state_first}
    ),
    "state.json written plainly": Wrong(
        "after a look whether n is still the head", {f"{_COMMIT}.committer.write_state": _state_plainly}, fault=_SLEEPS
    ),
    "manifest written plainly": Wrong(
        "without any look", {f"{_COMMIT}.committer.write_manifests": _manifest_plainly}, fault=_SLEEPS
    ),
    "version without the head": Wrong(
        "the manifest's version is read, but not whether anybody took over before that",
        {f"{_COMMIT}.head.Head.look_all": _look_at_version_only},
        fault=_SLEEPS,
    ),
}
_LOAD = {
    "lines after the STATE": Wrong(
        "a batch takes the lines after its STATE, too", {"bridge.load.spool.spool.Spool.seal": _seals_all}
    ),
    "a tap that failed has ended": Wrong(
        "what came after the last STATE counts although the tap failed",
        {"bridge.load.run.dispatcher.Dispatcher.end": _always_clean},
    ),
    "held rows": Wrong(
        "rows are published whether or not their bookmark has moved", {"bridge.load.run.barriers.covers": _always}
    ),
    "no replay guard": Wrong(
        "a run whose tap another program starts does not look from which STATE",
        {"bridge.load.run.execution.Execution._replay_guard": _none},
    ),
    "STATE before its rows": Wrong(
        "a commit does not wait until the rows before its STATE are stored",
        {"bridge.load.run.loader.Loader._step": _waits_for_no_batch},
    ),
}
_STALLED = Life(host="h2", faults=(Fault(1, "sleeps, and an upload goes", 1000.0, "complete"),))
_HALF_REMOVED = Life(host="h2", faults=(Fault(1, "sleeps, and an upload goes", 1000.0, "delete p/t", "copy"),))
_APART: dict[str, Any] = {"small": 0, "every": 60.0, "lists_pending": False, "leases": False}
AIMED = {
    "void without aborts": Schedule(1, Source("ab", (5, 2)), (_STALLED, Life(host="h3")), **_APART),
    "remove before add": Schedule(1, Source("t", (5, 2)), (Life(host="h1"), _HALF_REMOVED, Life(host="h3")), **_APART),
}
"""Schedules made by hand, which see what is rarely drawn."""
_NEEDS = {
    "no fence": ("", _SLEEPS),
    "remove before add": (_REPLACED, _GOES),
    "trash before add": (_REPLACED, _GOES),
    "void without aborts": ("", _GOES),
    "void removes before it aborts": ("", _GOES),
    "source stays": (_REPLACED, _SLEEPS),
    "no nonce": ("", "lost answer"),
    "abort after an unknown put": ("", "late"),
    "a late STATE is an edit": ("", _SLEEPS),
    "missing without the head": (_REPLACED, _SLEEPS),
    "trash of whatever is there": (_MERGED, _SLEEPS),
    "rewritten if it is there": (_MERGED, ""),
    "rewrite before trash": (_MERGED, ""),
    "void without settling": (_MERGED, _GOES),
    "settle without aborts": (_MERGED, _GOES),
    "abort what is to replace a file": (_MERGED, ""),
}
PROTOCOL = {name: Wrong.of(one, *_NEEDS.get(name, ())) for name, one in BROKEN.items() if one.life is Variant("").life}
WRONG = PROTOCOL | _ADAPTED | _LOAD
COSTS_WORK = {name: Wrong.of(one) for name, one in HARMLESS.items()}
_MOMENT = "another run has to be at one request of many just then"
NEVER: dict[str, str] = {
    "visible before pending": _MOMENT,
    "state.json looked at before the witness": _MOMENT,
    "void removes before it aborts": _MOMENT,
    "missing without the head": _MOMENT,
    "trash of whatever is there": _MOMENT,
    "settle without aborts": _MOMENT,
    "abort what is to replace a file": _MOMENT,
    "trash before add": "a third run has to void what a second one restored",
    "a late STATE is an edit": "the tap's STATE never comes back",
}
"""What the explorer finds, and no schedule has found yet, and why it is rare."""
