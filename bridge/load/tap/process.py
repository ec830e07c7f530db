"""One tap process: started with `--config --catalog --state`, read in large chunks, never left behind.

The tap leads a session of its own, so Ctrl-C reaches only us, and a whole tree of helpers can be stopped at once.
A small guard process waits on a pipe that only we hold. When we die, however we die, it stops the tap's group and
deletes its files.
A thread always drains stderr into the run's log. Secrets reach the tap in files of mode 600 that we delete at exit.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Protocol

from bridge.errors import TapError, TapNotFound
from bridge.exact_json import dumps
from bridge.load.tap.pipe import Silent, read_pipe
from bridge.load.tap.stderr import last_words, reason
from bridge.protocol.singer.messages import Message
from bridge.settings.redact import Redactor

_PIPE = 1 << 20
_F_SETPIPE_SZ = 1031
_LINE = 1 << 16
"""The bytes of a stderr line that are read at once."""

# The guard reads the tap's process group, then waits. A line means that the tap has ended; end-of-file, that we died.
_GUARD = (
    'read -r group && read -r ended && exit; kill -s TERM -- "-$group"; rm -rf "$1"; sleep 1; kill -s KILL -- "-$group"'
)
# The shell tells the guard its process group before it becomes the tap, so the tap is always guarded. The guard's
# pipe comes in as stdin, the one number that every shell can redirect, and is closed by the exec.
_START = 'echo $$ >&0; exec "$@" </dev/null'


def find_executable(argv: Sequence[str], folder: Path | None, environ: dict[str, str]) -> list[str]:
    """`argv` with its program's full path: in the tap's venv, on PATH, or beside ours. Raises `TapNotFound`."""
    places = [*([str(folder)] if folder else []), environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    program = shutil.which(argv[0], path=os.pathsep.join(places))
    if not program:
        hint = "install it (`pip_url` in bridge.yaml and `singer-bridge install`), or give its full path"
        if folder and not folder.exists():
            hint = "`singer-bridge install` puts it into an environment of its own, from its `pip_url`"
        raise TapNotFound("the tap was not found", hint=hint, tap=argv[0])
    return [program, *argv[1:]]


class TapLog(Protocol):
    """Takes the tap's stderr, secrets masked."""

    def write(self, data: bytes, /) -> object:
        """Take whole lines."""

    def flush(self) -> object:
        """Make the lines visible to other readers of the log."""


class Tap:
    """A running tap. Use it as a context manager: leaving it stops the tap's whole group and deletes its files."""

    proves_end = True

    def __init__(
        self,
        argv: Sequence[str],
        *,
        config: dict[str, Any] | Path,
        catalog: dict[str, Any] | Path | None = None,
        state: object = None,
        environ: dict[str, str],
        log: TapLog,
        redact: Redactor,
        catalog_flag: str = "--catalog",
    ) -> None:
        self._argv = list(argv)
        self._config, self._catalog, self._state = config, catalog, state
        self._catalog_flag = catalog_flag
        self._environ, self._log, self._redact = environ, log, redact
        self._last_lines: deque[bytes] = deque(maxlen=100)
        self._files = tempfile.TemporaryDirectory(prefix="singer-bridge-")
        self.stopped = False

    def __enter__(self) -> Tap:
        try:
            self._start()
        except BaseException:
            self._files.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stderr.join(timeout=5)
        self._guard.communicate(b"ended\n")
        self._process.stdout.close()  # type: ignore[union-attr]
        self._files.cleanup()

    def _start(self) -> None:
        command = [*self._argv, "--config", self._file("config.json", self._config)]
        if self._catalog is not None:
            command += [self._catalog_flag, self._file("catalog.json", self._catalog)]
        if self._state is not None:
            command += ["--state", self._file("state.json", self._state)]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", self._files.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdin
        try:
            self._process = self._spawn(command, self._guard.stdin)
        except OSError as error:
            self._guard.communicate()
            raise TapError(
                f"the tap cannot be started: {error.strerror}", hint="check the tap's path", tap=command[0]
            ) from error
        self._stderr = threading.Thread(target=self._drain, name="tap-stderr", daemon=True)
        self._stderr.start()

    def _spawn(self, command: list[str], guard: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _START, "tap", *command],
            stdin=guard,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
            bufsize=0,
        )
        with suppress(OSError, ImportError):  # a larger pipe, where the kernel allows it, means fewer switches
            import fcntl

            fcntl.fcntl(process.stdout, _F_SETPIPE_SZ, _PIPE)  # type: ignore[arg-type]
        return process

    def _file(self, name: str, content: object) -> str:
        if isinstance(content, Path):
            return str(content)
        path = Path(self._files.name) / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(dumps(content))
        return str(path)

    def _drain(self) -> None:
        stream = self._process.stderr
        assert stream
        with stream, open(stream.fileno(), "rb", closefd=False) as lines:
            tail = b""  # of a line longer than what is read at once: a secret may begin in it
            while piece := lines.readline(_LINE):
                line = tail + piece
                cut = len(line) if line.endswith(b"\n") else self._redact.settled(line)
                self._log_line(line[:cut])
                tail = line[cut:]
            if tail:
                self._log_line(tail)

    def _log_line(self, line: bytes) -> None:
        line = self._redact(line)
        self._last_lines.append(line)
        with suppress(OSError, ValueError):  # a full disk, a closed log: the tap must never wait for us here
            self._log.write(line)
            self._log.flush()

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield stdout until its end. `tick` runs at least twice a second and may raise to end the run.

        If an exited tap leaves programs that hold its stdout open, they are stopped after some seconds of silence.
        Raises `TapError` if nothing at all came for `idle`; the tap is then stopped already.
        """
        assert self._process.stdout
        try:
            yield from read_pipe(self._process.stdout.fileno(), idle=idle, tick=tick, ended=lambda: self.ended)
            if not select.select([self._process.stdout], [], [], 0)[0]:  # not at its end: another process holds it
                self.kill()
        except Silent:
            self.kill()
            hint = "raise `source.idle_timeout` if it needs longer; " + self._last_words()
            raise TapError("the tap was silent for too long and was stopped", hint=hint, idle_timeout=idle) from None

    def select_messages(self, messages: Iterable[Message]) -> Iterable[Message]:
        """All messages, unchanged."""
        return messages

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Wait for the tap's exit after the end of its output. Raises `TapError` unless it exited 0, unsignalled."""
        code = self._exit_code(idle, tick)
        self._stderr.join(timeout=5)
        if code < 0:
            raise TapError("the tap was killed by a signal", hint=self._last_words(), signal=signal.Signals(-code).name)
        if code or self.stopped:
            why = "" if self.stopped else reason(self._last_text())
            text = f"the tap failed: {why}" if why else "the tap failed"
            raise TapError(text, hint=self._last_words(), exit_code=code)

    def _exit_code(self, idle: timedelta | None, tick: Callable[[], None]) -> int:
        limit = time.monotonic() + (idle.total_seconds() if idle else float("inf"))
        while True:
            tick()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(0.5)
            if time.monotonic() > limit:
                self.kill()
                hint = self._last_words()
                raise TapError("the tap closed its output and did not exit", hint=hint, idle_timeout=idle)

    def failure(self, message: str) -> TapError:
        """A `TapError` with the tap's last lines on stderr."""
        return TapError(message, hint=self._last_words())

    def _last_words(self) -> str:
        return last_words(self._last_text())

    def _last_text(self) -> str:
        return b"".join(self._last_lines).decode("utf-8", "replace")

    def terminate(self, grace: timedelta = timedelta(seconds=5)) -> None:
        """Stop the tap's group: SIGTERM, then SIGKILL after `grace`. Its exit code then proves nothing."""
        self.stopped = True
        self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace.total_seconds())
        self.kill()

    def kill(self) -> None:
        """Kill what is left of the tap's group, now."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    @property
    def ended(self) -> bool:
        """Whether the tap has exited; what it wrote may still be in the pipe."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to the tap's group. Its exit code then proves nothing, if it was still alive."""
        self.stopped = self.stopped or not self.ended
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
