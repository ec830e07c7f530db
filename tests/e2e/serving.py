"""A service with its page, for a block."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.conftest import wait_until_gone
from tests.support.service import until


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `singer-bridge serve` in a project; yields its page's URL."""
    log = folder / "service.log"
    argv = [sys.executable, "-m", "bridge", "serve", "--log-format", "json"]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, cwd=folder, stderr=file, start_new_session=True)

    def address() -> str | None:
        assert process.poll() is None, log.read_text()
        match = re.search(r'"url": ?"([^"]+)"', log.read_text())
        return match[1] if match else None

    try:
        yield until(address, 60)
    finally:
        process.terminate()
        process.wait(120)
        wait_until_gone(folder, 30)
