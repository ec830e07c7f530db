"""A tap at the other end of a pipe: another program starts it, and we cannot know how it ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any

from bridge.errors import DataError, TapError
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.new_columns import ColumnNews
from bridge.load.tap.pipe import READ_BYTES, read_pipe
from bridge.protocol.singer.messages import LONGEST_LINE, Activate, Message, Records, Schema, parse
from bridge.protocol.singer.state import parse_state


@dataclass(frozen=True, slots=True)
class Start:
    """The STATE that a tap was started with, None for none."""

    state: Any


class Stdin:
    """Messages on a pipe or in a file, as a target reads them. Their end does not say how the tap ended.

    `activates`: ACTIVATE_VERSION has an effect. `through` may rewrite the messages. `counts` counts them by type.
    """

    proves_end = False

    def __init__(
        self,
        file: IO[Any],
        *,
        activates: bool = True,
        through: Callable[[Iterator[bytes]], Iterator[bytes]] = iter,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._file, self._activates, self._through = file, activates, through
        self._ahead: list[bytes] = []

    def __enter__(self) -> Stdin:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the pipe as it is: its writer notices when we end."""

    def echo(self, tick: Callable[[], None]) -> Start | None:
        """The STATE if it is the very first message, otherwise None. Waits for that message.

        Taps of the Singer SDK begin with the STATE that they were started with. From any other tap it means the same:
        no row came before it, so the tap continues as if it had been started with it.
        """
        chunks, size = list[bytes](), 0
        for chunk in self._chunks(tick):
            chunks.append(chunk)
            size += len(chunk)
            if size > LONGEST_LINE or (b"\n" in chunk and b"\n" in b"".join(chunks).lstrip()):
                break
        self._ahead = chunks
        line = b"".join(chunks).lstrip().split(b"\n", 1)[0]
        message = parse(line)
        if message is None or str(message["type"]).upper() != "STATE" or not isinstance(message.get("value"), dict):
            return None
        return Start(parse_state(line))

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield chunks until the pipe ends, however long that takes: `idle` is only for taps that we start."""
        return self._through(self._chunks(tick))

    def _chunks(self, tick: Callable[[], None]) -> Iterator[bytes]:
        while self._ahead:
            yield self._ahead.pop(0)
        try:
            fd = self._file.fileno()
        except OSError:  # text in memory, as tests of the Singer SDK give it
            while chunk := self._file.read(READ_BYTES):
                tick()
                yield chunk.encode() if isinstance(chunk, str) else chunk
        else:
            yield from read_pipe(fd, idle=None, tick=tick)

    def select_messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages to act upon. Raises `DataError` for a SCHEMA that no target of the Singer SDK accepts."""
        for message in messages:
            self.counts[_TYPES.get(type(message).__name__, "")] += message.lines if isinstance(message, Records) else 1
            if isinstance(message, Schema) and not isinstance(message.schema.get("properties"), dict):
                hint = "correct it in the catalog, or report it to the tap's authors"
                schema = json.dumps(message.schema)[:200]
                raise DataError("a SCHEMA has no properties", hint=hint, stream=message.stream, schema=schema)
            if self._activates or not isinstance(message, Activate):
                yield message

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Return at once: we cannot wait for a process that we did not start."""
        tick()

    def terminate(self) -> None:
        """Read no more; the writer notices when we end."""

    def failure(self, message: str) -> TapError:
        """The error alone: we cannot see the tap's own log."""
        return TapError(message, hint="look at the tap's own log; what it had sent up to its last STATE is committed")


class Piped:
    """Takes the place of a `Source` if another program starts the tap, and passes on each committed STATE.

    `name` is the tap's name. `emit` is called with each STATE; if it raises an `OSError`, the run ends. `start` is the
    STATE that the tap was started with, if known; otherwise the tap's first message may tell. `accepts_missing`: go on
    from a STATE that was taken back in the lake.
    """

    def __init__(
        self,
        name: str,
        feed: Stdin,
        emit: Callable[[Any], None],
        start: Start | None = None,
        *,
        accepts_missing: bool = False,
    ) -> None:
        self.argv, self.accepts_missing = [name], accepts_missing
        self.notes: list[str] = []
        self.news: list[ColumnNews] = []
        self.declared = None
        self.database = SourceDatabase(None, self.argv)
        self._feed, self._emit, self._start = feed, emit, start
        self._failure: OSError | None = None

    def catalog(self, only: Sequence[str], *, refresh: bool) -> tuple[None, set[str]]:
        return None, set()

    def start(self, catalog: object, state: object, log: object, settings: object = None) -> Stdin:
        """The pipe: the tap already has its catalog and STATE, and its log is elsewhere."""
        return self._feed

    def started(self, tick: Callable[[], None]) -> Start | None:
        """The STATE with which the tap was started, None if unknown. May wait for the tap's first message."""
        return self._start or self._feed.echo(tick)

    def emit_state(self, state: Any) -> None:
        """Pass on a committed STATE. Called in the thread that commits."""
        try:
            self._emit(state)
        except OSError as error:
            self._failure = error

    def check(self) -> None:
        """Raise `TapError` once nobody reads our STATEs."""
        if self._failure:
            hint = "what is committed stays; if the tap is started again, rows that it repeats are recognised"
            raise TapError(f"nobody reads the STATEs: {self._failure.strerror}", hint=hint)


_TYPES = {
    "Records": "RECORD",
    "Schema": "SCHEMA",
    "State": "STATE",
    "Activate": "ACTIVATE_VERSION",
    "Batch": "BATCH",
}
