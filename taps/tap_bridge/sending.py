"""Rows thousands at a time, in their order; files are read, and their rows written as JSON, by several threads."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Full, Queue
from typing import Any

import orjson
import pyarrow as pa

from bridge.read.query.changes.change import Position
from bridge.read.query.changes.json_text import lines, not_finite, objects, slices
from bridge.read.query.changes.parts import Part
from tap_bridge.bookmark import Place

_CHUNKS = 4
"""Chunks of a part that wait to be sent, at most."""
_PATIENCE = 0.2
"""Seconds after which a waiting thread looks whether it is still needed."""


@dataclass(frozen=True, slots=True)
class Due:
    """A part of a commit, of which the first `skip` rows are sent already."""

    at: Position
    part: Part
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a part, and the place after them."""

    place: Place
    rows: pa.Table
    objects: pa.Array | None = None
    """The same as JSON, where they become RECORDs."""
    not_finite: tuple[str, ...] = ()
    """Columns with a NaN or an infinity, which are null here."""


def _chunks(due: Due, most: int, *, as_text: bool) -> Iterator[Chunk]:
    """Yield the rows that are due of a part. Raises what reading raises."""
    rows = due.skip
    for table in due.part.tables(due.skip):
        for piece in slices(table, most):
            rows += len(piece)
            place = Place(due.at, due.part.name, rows)
            yield Chunk(place, piece, objects(piece), tuple(not_finite(piece))) if as_text else Chunk(place, piece)


@dataclass(slots=True)
class _Work:
    """A part that a thread reads ahead."""

    due: Due
    most: int
    as_text: bool
    ready: Queue[Chunk | BaseException | None] = field(default_factory=lambda: Queue(_CHUNKS))


def chunks_of(parts: Iterable[Due], threads: int, most: int, *, as_text: bool) -> Iterator[Chunk]:
    """Yield the chunks of all parts, in their order, each of `most` rows at most, while threads read the next parts.

    With one thread nothing is read ahead. `as_text`: write them as JSON, too. Raises what reading raises, where the
    rows would be.
    """
    if threads < 2:
        for due in parts:
            yield from _chunks(due, most, as_text=as_text)
        return
    stop, coming, running = threading.Event(), iter(parts), deque[_Work]()
    try:
        while True:
            while len(running) < threads and (following := next(coming, None)) is not None:
                running.append(_started(_Work(following, most, as_text), stop))
            if not running:
                return
            yield from _drained(running.popleft())
    finally:
        stop.set()


def _started(work: _Work, stop: threading.Event) -> _Work:
    threading.Thread(target=_read, args=(work, stop), name=f"read {work.due.part.name}", daemon=True).start()
    return work


def _read(work: _Work, stop: threading.Event) -> None:
    try:
        for chunk in _chunks(work.due, work.most, as_text=work.as_text):
            if not _put(work, chunk, stop):
                return
        _put(work, None, stop)
    except BaseException as error:  # noqa: BLE001 - raised again where the rows are sent
        _put(work, error, stop)


def _put(work: _Work, item: Chunk | BaseException | None, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            work.ready.put(item, timeout=_PATIENCE)
        except Full:
            continue
        return True
    return False


def _drained(work: _Work) -> Iterator[Chunk]:
    while (item := work.ready.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


@contextmanager
def until_the_target_ends(logger: logging.Logger) -> Iterator[None]:
    """Exit with 1 if nobody reads stdout any more: the SDK would log a fault of the tap's own, Click nothing."""
    try:
        yield
    except BrokenPipeError:
        logger.error("The target ended before the tap")  # noqa: TRY400 - whose fault it is stands in its own log
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it ends
        raise SystemExit(1) from None


def write_records(stream: str, version: int, texts: pa.Array) -> None:
    """Write a RECORD for each object to stdout, at once."""
    before = b'{"type":"RECORD","stream":' + orjson.dumps(stream) + b',"record":'
    _write(lines(texts, before, b',"version":%d}\n' % version))


def write_message(message: dict[str, Any]) -> None:
    """Write another message to stdout, at once."""
    _write(memoryview(orjson.dumps(message) + b"\n"))


def _write(whole: memoryview) -> None:
    sys.stdout.flush()
    out: Any = getattr(sys.stdout, "buffer", None)
    if out is None:  # a test's
        sys.stdout.write(bytes(whole).decode())
    else:
        out.write(whole)
        out.flush()
