"""A Delta table in a bucket: killed at every single change that a run asks the store for, and looked at by a reader.

In this process, since Delta's readers do not survive a fork: whoever is dead asks the store for nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session

from bridge.settings.values.s3options import S3Options
from bridge.storage import open_storage
from tests.contract.crashing import Crash
from tests.support.lake import DEAD

from .places import InBucket, Place
from .s3copies import ENVIRON
from .test_delta_steps import HISTORY, Table

SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]
_SEND = URLLib3Session.send


@dataclass
class Requests:
    """The changes that were asked for, counted from 0; the one `at` which we die is not sent, and none after it."""

    at: int | None
    seen: list[str] = field(default_factory=list)
    dead: bool = False
    _lock: Any = field(default_factory=threading.Lock)

    def send(self, session: Any, request: Any) -> Any:
        """Send a request, or die."""
        with self._lock:
            if request.method not in ("GET", "HEAD") and not self.dead:
                self.dead = len(self.seen) == self.at
                self.seen.append(f"{request.method} {request.url}")
            if self.dead:
                raise Crash(request.url)
        return _SEND(session, request)


@contextmanager
def dying(at: int | None) -> Iterator[Requests]:
    """Run the block as a process that dies at that change."""
    requests = Requests(at)

    def send(session: Any, request: Any) -> Any:
        return requests.send(session, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(URLLib3Session, "send", send)
        try:
            yield requests
        except Crash:
            assert requests.dead


class Frozen:
    """The table in a bucket that is copied before each death."""

    def __init__(self, place: InBucket, before: int) -> None:
        self.place = place
        with place.thawed():
            self.table = Table(open_storage(place.uri, S3Options(endpoint_url=place.endpoint)), before)
            self.frozen = place.freeze()

    @contextmanager
    def thawed(self) -> Iterator[Table]:
        with self.place.thawed(self.frozen):
            yield self.table

    def steps(self) -> list[str]:
        """The changes of a run that nobody kills."""
        with self.thawed() as table, dying(None) as requests:
            table.run(table.last)
            table.whole()
        assert any("_delta_log" in change for change in requests.seen)
        return requests.seen


@pytest.fixture(params=["s3", "s3-uploads"])
def place(
    request: pytest.FixtureRequest, place_of: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch
) -> InBucket:
    place = place_of(request.param)
    assert isinstance(place, InBucket)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    if request.param == "s3-uploads":
        monkeypatch.setattr("bridge.storage.s3.pending._SMALL", -1)
    return place


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=SLOW)])
def test_one_death(place: InBucket, before: int, every: int) -> None:
    """Wherever a run dies a reader has the rows before or those after, and the next run completes it."""
    frozen = Frozen(place, before)
    steps = frozen.steps()
    for at in range(2 * before % every, len(steps), every):
        with frozen.thawed() as table:
            with dying(at) as requests:
                table.run(table.last)
            assert requests.dead, steps[at]
            assert table.rows() in (table.before, table.after), steps[at]
            table.run(DEAD)
            table.whole()
    frozen.frozen.close()


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize("every", [pytest.param(3, marks=SLOW)])
def test_death_of_the_recovery(place: InBucket, before: int, every: int) -> None:
    """A recovery that dies over a commit leaves nothing that a third run cannot repair."""
    frozen = Frozen(place, before)
    steps = frozen.steps()
    committed = next(at for at, change in enumerate(steps) if "/commits/" in change)
    for first in range(committed + 1, len(steps), every):
        with frozen.thawed() as table:
            with dying(first):
                table.run(table.last)
            died = place.freeze()
            with dying(None) as second:
                table.run(DEAD)
            for at in range(before % every, len(second.seen), every):
                place.put_back(died)
                with dying(at) as requests:
                    table.run(DEAD)
                assert requests.dead
                assert table.rows() in (table.before, table.after)
                table.run(DEAD)
                table.whole()
            died.close()
    frozen.frozen.close()
