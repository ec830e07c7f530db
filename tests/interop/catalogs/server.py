"""A catalog in a process of its own. What it knows outlives the process, as behind any real one."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.interop.loopback import free_port


class CatalogServer:
    """From the side of a test: `start`, `stop` and `start` again, always at the same address."""

    product = ""
    """What it is, with its version, as docs/stores.md names it."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="catalog-")
        self.folder = Path(self._scratch.name)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[Any]:
        """What starts it."""
        raise NotImplementedError

    @property
    def properties(self) -> dict[str, str]:
        """What pyiceberg needs to open it, as in `destination.catalog.properties`."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._process = subprocess.Popen(
            [str(part) for part in self.command()],
            env=environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        deadline = time.monotonic() + 400
        while not self.is_up():
            assert self._process.poll() is None, f"{self.product} did not start: {self.last_words()}"
            assert time.monotonic() < deadline, f"{self.product} does not answer: {self.last_words()}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End it at once, as a machine that dies does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def __enter__(self) -> CatalogServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._scratch.cleanup()
