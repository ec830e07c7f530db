"""Spark that never ends its work: a signal or a time-out ends the run, and nothing is lost, doubled or covered early.

A real load of a tap's messages; in place of Spark a thread that works, or stands still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import BridgeError, EngineError, Interrupted, TimedOut
from bridge.load.spark.query import Engine
from tests.support.pipe import Found, InProcess, Pipe, done, wire

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"type": "string"}}}
GRACE = 0.3


def users(first: int, last: int, *, keys: Sequence[str] = (), wide: int = 1) -> bytes:
    """Rows of these ids, and the STATE that covers them."""
    schema = {"type": "SCHEMA", "stream": "users", "schema": SCHEMA, "key_properties": list(keys)}
    rows = [{"type": "RECORD", "stream": "users", "record": {"id": n, "v": "x" * wide}} for n in range(first, last + 1)]
    return wire(schema, *rows, state(last))


def state(last: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"users": {"replication_key_value": last}}}}


class Spark:
    """Stands still after so many manifests or pieces of work, and the run hears then that it shall end.

    It stands until it is killed, or until the run has given it up, or for some seconds.
    """

    def __init__(self, error: BridgeError, *, manifests: int = 99, pieces: int = 99, until: str = "killed") -> None:
        self.error, self.manifests, self.pieces, self.until = error, manifests, pieces, until
        self.killed, self.given_up, self.stands = threading.Event(), threading.Event(), threading.Event()

    def tick(self) -> None:
        if self.stands.is_set():
            raise self.error

    def stand(self) -> None:
        self.stands.set()
        if self.until == "later":
            time.sleep(GRACE / 2)
        elif self.until == "given up":
            assert self.given_up.wait(20)
        else:
            assert self.killed.wait(20)
            raise RuntimeError("Spark's JVM is gone")


class Standing(Engine):
    """The engine before its JVM, whose work is done by a thread of its own."""

    spark: Spark

    def start(self, why: str) -> None:
        if not self._query:
            self._query = SimpleNamespace(exception=lambda: None)
            threading.Thread(target=self._work, daemon=True).start()

    def stop(self, *, hurry: bool) -> None:
        super().stop(hurry=hurry)
        self.spark.killed.set()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.spark.given_up.set()

    def cancel(self) -> None:
        self.spark.killed.set()

    def each(
        self, work: Callable[..., dict[str, Any]], payloads: Sequence[Any], *, cost: float
    ) -> list[dict[str, Any]]:
        if cost > 1:
            self.spark.pieces -= 1
            if self.spark.pieces < 0:
                self.spark.stand()
        return [work(self._context, payload) for payload in payloads]

    def _work(self) -> None:
        try:
            while not self._stopping:
                for batch in list(self._sealed.values()):
                    if batch.seq > self.spark.manifests:
                        self.spark.stand()
                    self._take(batch, done(self._context, batch))
                time.sleep(0.005)
        except BaseException as error:
            self.fail(error)


def lake(root: Path, spark: Spark) -> Pipe:
    """A pipeline whose Spark is this one."""

    class Standstill(InProcess):
        engine = Standing

        def _new_engine(self) -> Engine:
            engine = super()._new_engine()
            assert isinstance(engine, Standing)
            engine.spark, engine.grace = spark, GRACE
            return engine

    return Pipe(root, spark.tick, Standstill)


def ids(found: Found) -> list[int]:
    return sorted(row["id"] for row in found.rows("users")) if "users" in found.streams() else []


def bookmark(found: Found) -> int | None:
    return (found.state or {}).get("bookmarks", {}).get("users", {}).get("replication_key_value")


def ends() -> list[BridgeError]:
    return [Interrupted(15), TimedOut("the run took longer than its time-out", hint="raise --timeout")]


def waiting(data: list[bytes], spark: Spark, *, running: bool) -> Iterator[bytes]:
    """What a tap sends that ends at once, or that is still there while Spark stands still."""
    yield from data
    while running:
        time.sleep(0.01)
        yield b""


@pytest.mark.parametrize("error", ends(), ids=["signal", "time-out"])
@pytest.mark.parametrize("tap", ["ended", "running"])
@pytest.mark.parametrize("until", ["killed", "given up"])
def test_a_run_ends_though_spark_stands_still(tmp_path: Path, error: BridgeError, tap: str, until: str) -> None:
    """After the tap's end or before, Spark has its grace; what was committed before stays, the next run completes."""
    spark = Spark(error, manifests=1, until=until)
    data = waiting([users(1, 10), users(11, 20)], spark, running=tap == "running")
    found = lake(tmp_path, spark).load(data, commit={"rows": 10})
    assert found.error is error
    assert "rows that are in no commit were given up" in error.hint
    assert (ids(found), bookmark(found)) == (list(range(1, 11)), 10)
    done = Pipe(tmp_path).load(users(11, 20))
    assert (ids(done), bookmark(done)) == (list(range(1, 21)), 20)


@pytest.mark.parametrize("error", ends(), ids=["signal", "time-out"])
@pytest.mark.parametrize("where", ["after a manifest", "by itself"])
def test_a_run_ends_though_a_commit_stands_still(
    tmp_path: Path, error: BridgeError, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where Spark merges the rows of a commit: table and STATE are those of before, and stay in step."""
    monkeypatch.setattr("bridge.load.write.merge.plan._SPILLED", 1)  # so few rows need no Spark
    first = Pipe(tmp_path).load(users(1, 5, keys=["id"]), load_method="upsert")
    spark = Spark(error, pieces=0)
    # Of so many bytes all rows are with Spark when the STATE comes: the commit seals nothing more.
    data = users(1, 20, keys=["id"], wide=100_000 if where == "by itself" else 1)
    lines = data.splitlines(keepends=True)
    chunks = [b"".join(lines[:-1]), lines[-1]]
    found = lake(tmp_path, spark).load(chunks, load_method="upsert", commit={"bytes": 1 << 20})
    assert found.error is error
    assert (ids(first), bookmark(first)) == (ids(found), bookmark(found)) == ([1, 2, 3, 4, 5], 5)
    done = Pipe(tmp_path).load(data, load_method="upsert")
    assert (ids(done), bookmark(done)) == (list(range(1, 21)), 20)


def test_a_stop_while_spark_works_is_no_failure(tmp_path: Path) -> None:
    """A signal after the tap's end, with Spark at work: the last commit is made, and the run is a success."""
    spark = Spark(Interrupted(15), manifests=0, until="later")
    found = lake(tmp_path, spark).load(users(1, 10))
    assert spark.stands.is_set()
    assert (found.error, ids(found), bookmark(found)) == (None, list(range(1, 11)), 10)


class Asking(InProcess):
    """Asks Spark for one more thing at its end, which fails in Spark's own words."""

    def finish(self) -> None:
        super().finish()
        asked = Future[None]()
        asked.set_exception(RuntimeError("Job aborted due to stage failure"))
        self._answer(asked)


def test_what_fails_in_spark_is_told_as_such(tmp_path: Path) -> None:
    """Not as an error of ours, and without a traceback; what was committed stays."""
    found = Pipe(tmp_path, kind=Asking).load(users(1, 3))
    assert isinstance(found.error, EngineError)
    assert "Spark failed cause=Job aborted" in found.error.message
    assert len(found.rows("users")) == 3
