"""The tap at the other end of a pipe: not ours to start, nor to ask how it ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any

from bridge.errors import DataError, TapError
from bridge.singer.messages import LONGEST_LINE, Activate, Message, Records, Schema, parse
from bridge.singer.state import parse_state
from bridge.tap.pipe import READ_BYTES, read_pipe


@dataclass(frozen=True, slots=True)
class Start:
    """The STATE that a tap was started with, None for none."""

    state: Any


class Stdin:
    """Messages on a pipe or in a file, as a target reads them. Its end says nothing of how the tap ended.

    `activates`: ACTIVATE_VERSION is acted upon. `through` may rewrite the messages. `counts` are those that came, by
    type, RECORDs by their number.
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
        """Leave the pipe as it is: its writer hears of our end when we end."""

    def echo(self, tick: Callable[[], None]) -> Start | None:
        """Return the STATE that is the very first message, None if that is another one. Waits for it.

        Taps of the Singer SDK begin with the STATE that they were given. Of any other tap it is as good: no row came
        before it, so what follows is what a tap sends that was started with it.
        """
        read, size = list[bytes](), 0
        for chunk in self._chunks(tick):
            read.append(chunk)
            size += len(chunk)
            if size > LONGEST_LINE or (b"\n" in chunk and b"\n" in b"".join(read).lstrip()):
                break
        self._ahead = read
        line = b"".join(read).lstrip().split(b"\n", 1)[0]
        message = parse(line)
        if message is None or str(message["type"]).upper() != "STATE" or not isinstance(message.get("value"), dict):
            return None
        return Start(parse_state(line))

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield what is on the pipe until its end, however long that takes: `idle` is for taps of our own."""
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

    def heard(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield the messages that count. Raises `DataError` for a SCHEMA that no target of the Singer SDK takes."""
        for message in messages:
            self.counts[_TYPES.get(type(message).__name__, "")] += message.lines if isinstance(message, Records) else 1
            if isinstance(message, Schema) and not isinstance(message.schema.get("properties"), dict):
                hint = "correct it in the catalog, or report it to the tap's authors"
                schema = json.dumps(message.schema)[:200]
                raise DataError("a SCHEMA has no properties", hint=hint, stream=message.stream, schema=schema)
            if self._activates or not isinstance(message, Activate):
                yield message

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Return at once: there is nothing to wait for."""
        tick()

    def terminate(self) -> None:
        """Read no more; the writer hears of it when we end."""

    def failure(self, message: str) -> TapError:
        """Return the error; what the tap said elsewhere is not ours to see."""
        return TapError(message, hint="look at the tap's own log; what it had sent up to its last STATE was kept")


class Piped:
    """What takes the place of a `Source` where the tap is somebody else's, and hears of each committed STATE.

    `name` is what the tap is called. `told` is called with each STATE; an `OSError` of its own ends the run. `start` is
    the STATE that the tap was started with, where that is known; else its first message may say it.
    """

    def __init__(self, name: str, feed: Stdin, told: Callable[[Any], None], start: Start | None = None) -> None:
        self.argv = [name]
        self.notes: list[str] = []
        self._feed, self._told, self._start = feed, told, start
        self._deaf: OSError | None = None

    def catalog(self, only: Sequence[str], *, refresh: bool) -> tuple[None, set[str]]:
        """Return that no catalog is known."""
        return None, set()

    def start(self, catalog: object, state: object, log: object, settings: object = None) -> Stdin:
        """Return the pipe: the tap has its catalog and STATE already, and its log is elsewhere."""
        return self._feed

    def started(self, tick: Callable[[], None]) -> Start | None:
        """Return what the tap was started with, None if nobody knows; may wait for its first message."""
        return self._start or self._feed.echo(tick)

    def said(self, state: Any) -> None:
        """Tell a STATE; in whichever thread commits."""
        try:
            self._told(state)
        except OSError as error:
            self._deaf = error

    def check(self) -> None:
        """Raise `TapError` once nobody hears our STATEs any more."""
        if self._deaf:
            hint = "what was committed stays; a tap that is started again is matched with what it sends again"
            raise TapError(f"nobody reads the STATEs: {self._deaf.strerror}", hint=hint)


_TYPES = {
    "Records": "RECORD",
    "Schema": "SCHEMA",
    "State": "STATE",
    "Activate": "ACTIVATE_VERSION",
    "Batch": "BATCH",
}
