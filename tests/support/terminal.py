"""A command on a terminal of its own: its questions are answered as they come."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

from click import unstyle

from tests.support.shell import Done

_PATIENCE = 120
"""Seconds that a question may take to come."""
_ON_THIS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def talk(command: str, answers: list[tuple[str, str]], folder: Path | None = None, **environ: str) -> str:
    """Type a command on a terminal of its own, answer each question as it comes; return all that was said."""
    return talked(command, answers, folder, **environ).out


def talked(command: str, answers: list[tuple[str, str]], folder: Path | None = None, **environ: str) -> Done:
    """The same with the exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    program = [sys.executable, "-c", _ON_THIS_TERMINAL, sys.executable, "-m", "bridge", *shlex.split(command)]
    env = {name: value for name, value in os.environ.items() if name != "CI"} | environ
    said = ""
    with subprocess.Popen(
        program, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=env, cwd=folder
    ) as one:
        os.close(theirs)
        try:
            for question, answer in answers:
                while not unstyle(said).endswith(question):
                    ready, _, _ = select.select([ours], [], [], _PATIENCE)
                    assert ready, f"{question!r} was not asked: {said[-2000:]}"
                    said += os.read(ours, 4096).decode()
                said += "\n"
                os.write(ours, f"{answer}\n".encode())
            while more := os.read(ours, 4096).decode():
                said += more
        except OSError:  # the other end is closed
            one.wait(_PATIENCE)
        finally:
            one.kill()
            os.close(ours)
    return Done(one.returncode, unstyle(said).replace("\r", ""), "")
