"""The one session that this process made ahead of a run. Only for Spark on this machine: a cluster's cores are dear."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bridge.errors import EngineError
from bridge.settings.options import is_local

if TYPE_CHECKING:
    from bridge.load.spark.session import Session

_LOCK = ".lock"
"""Locked as long as the process lives whose folder it is in."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A session, and the settings of Spark that it was made with."""

    session: Session
    master: str
    conf: dict[str, str]
    folder: Path
    lock: IO[str]

    def fits(self, master: str, conf: dict[str, str]) -> bool:
        return (self.master, self.conf) == (master, conf) and self.session.is_alive

    def end(self) -> None:
        self.session.close(hurry=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


_ahead: _Ahead | None = None
_taken: _Ahead | None = None


def prepare(master: str, conf: dict[str, str], folder: Path) -> None:
    """Make a session ahead, unless there is one; its scratch is below `folder`. Raises `EngineError`, `SettingsError`.

    Folders that killed processes have left there are deleted.
    """
    global _ahead  # noqa: PLW0603 - a process has one Spark
    if _ahead or not is_local(master):
        return
    from bridge.load.spark.jvm.jvm import refuse_another_session
    from bridge.load.spark.session import Session
    from bridge.load.spark.warm.rehearsal import rehearse

    refuse_another_session()
    delete_leftovers(folder)
    own = Path(tempfile.mkdtemp(dir=folder))
    lock = (own / _LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    session = Session(master, conf, own, own / "spark.log")
    ahead = _Ahead(session, master, dict(conf), own, lock)
    try:
        rehearse(session, master, own)
    except Exception as error:
        ahead.end()
        raise EngineError("Spark failed before a run", hint="see the cause", cause=type(error).__name__) from error
    session.put_aside()
    _ahead = ahead


def take(master: str, conf: dict[str, str], log: Path) -> Session | None:
    """The session for a run with these settings, once; None if there is none. Its log goes on under `log`.

    One with other settings, or whose JVM has died, is ended.
    """
    global _ahead, _taken  # noqa: PLW0603 - see above
    ahead, _ahead = _ahead, None
    if ahead is None:
        return None
    ahead.session.resume()
    if not ahead.fits(master, conf):
        ahead.end()
        return None
    log.unlink(missing_ok=True)
    log.symlink_to(ahead.folder / "spark.log")
    _taken = ahead
    return ahead.session


def tidy() -> bool:
    """Delete what the session of an ended run has left. Returns whether a session waits, as no run took it."""
    global _taken  # noqa: PLW0603 - see above
    if _taken:
        shutil.rmtree(_taken.folder, ignore_errors=True)
        _taken.lock.close()
        _taken = None
    return _ahead is not None and _ahead.session.is_alive


def end() -> None:
    """End the session that no run took, if there is one."""
    global _ahead  # noqa: PLW0603 - see above
    if _ahead:
        _ahead.session.resume()
        _ahead.end()
        _ahead = None


def delete_leftovers(folder: Path) -> None:
    """Delete the scratch of sessions whose processes are dead."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.iterdir():
        try:
            descriptor = os.open(old / _LOCK, os.O_RDWR)
        except OSError:
            continue  # it is being made, or being deleted
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
        except BlockingIOError:
            pass  # its process lives
        finally:
            os.close(descriptor)
