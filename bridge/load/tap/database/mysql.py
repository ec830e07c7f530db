"""A connection to MySQL or MariaDB: the Python of the tap, which has a driver, runs `ask_mysql` and is asked on a pipe.

No driver of ours is needed, and the tap's connects as the tap does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from bridge.exact_json import NotJson, dumps, loads
from bridge.load.tap.database import ask_mysql
from bridge.load.tap.database.connection import Answer, NotAsked, Query
from bridge.load.tap.pipe import Silent, read_pipe

_START = 15
"""Seconds for starting Python and connecting."""
_END = 1
"""Seconds for its end, once its stdin is closed."""


class MySqlConnection:
    """The process connects with the first question. It ends when we do, as its stdin does."""

    def __init__(self, program: str, config: dict[str, Any]) -> None:
        """`program` is the tap's, `config` its settings. Raises `NotAsked`."""
        argv, pipe = [python_of(program), ask_mysql.__file__], subprocess.PIPE
        quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "start_new_session": True}  # Ctrl-C is for us
        try:
            self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, bufsize=0, **quiet)
        except OSError as error:
            raise NotAsked(f"{argv[0]}: {error.strerror}") from None
        self._config = config
        self._write(config)

    def ask(self, queries: Sequence[Query], each: float, whole: float) -> list[Answer]:
        asked = [(sql, list(map(_literal, values))) for sql, values in queries]
        self._write({"queries": asked, "each": each, "whole": whole})
        answer = self._read(timedelta(seconds=_START + each + whole))
        if "error" in answer:
            raise NotAsked(str(answer["error"]))
        return list(answer["answers"])

    def close(self) -> None:
        """End the process, whatever it does."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _write(self, question: dict[str, Any]) -> None:
        assert self._process.stdin
        line = memoryview(dumps(question) + b"\n")
        try:
            while line:
                line = line[self._process.stdin.write(line) :]
        except OSError:
            raise NotAsked("the tap's Python has ended") from None

    def _read(self, limit: timedelta) -> dict[str, Any]:
        assert self._process.stdout
        line = bytearray()
        try:
            for chunk in read_pipe(self._process.stdout.fileno(), idle=limit, tick=lambda: None):
                line += chunk
                if chunk.endswith(b"\n"):
                    return dict(loads(bytes(line)))
        except Silent:
            raise NotAsked(f"no answer came in {limit.total_seconds():.0f} s") from None
        except (NotJson, TypeError, ValueError):
            pass
        raise NotAsked("the tap's Python gave no answer")


def python_of(program: str) -> str:
    """The Python beside the tap's program, which has its driver; otherwise ours, which may have one."""
    place = Path(shutil.which(program) or program)
    with suppress(OSError):
        for folder in (place.parent, place.resolve().parent):
            if (python := folder / "python").is_file():
                return str(python)
    return sys.executable


def _literal(value: Any) -> Any:
    """A time as MySQL and MariaDB compare it with a column, in UTC; anything else as it is."""
    if isinstance(value, str) and "T" in value:
        with suppress(ValueError):
            at = datetime.fromisoformat(value.replace("Z", "+00:00"))
            at = at.astimezone(timezone.utc) if at.tzinfo else at
            return at.replace(tzinfo=None).isoformat(" ")
    return value
