"""`${cmd:...}`: what a command prints, such as a secret of a vault. No shell is involved, and stdin is closed.

A command runs once in a process: its output is remembered, whoever asks for it. For a run of a process that lives long
it runs again (`renew`). A failure is remembered for a minute.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import SettingsError
from bridge.settings.redact import redactor, worth_hiding

if TYPE_CHECKING:  # imported where it is used: most projects have no command, and a small verb starts in milliseconds
    import subprocess

_LIMIT = 30.0
"""Seconds that a command may take: time to type a passphrase into the window of an agent."""
_MOST = 64 * 1024
"""Bytes that it may print."""
_TOO_OLD = 600.0
"""Seconds after which a command runs again for a run."""
_FAILURE = 60.0
"""Seconds for which a failure is remembered."""
_LOOK = 0.05
"""Seconds between two looks at a command that is running."""
_SHOWN = 300
"""Characters of stderr's last line that an error shows."""


def split(text: str) -> list[str]:
    """A command as a list of words. Raises `SettingsError` that does not show it."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise SettingsError("quotes are not closed in ${cmd:...}", hint="close them") from None
    if not words:
        raise SettingsError("no command in ${cmd:...}", hint="such as ${cmd:pass show db/sales}")
    return [os.path.expanduser(words[0]), *words[1:]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    at: float
    """On the monotonic clock."""
    output: str = field(default="", repr=False)
    failure: SettingsError | None = None


_Key = tuple[tuple[str, ...], Path, frozenset[tuple[str, str]]]


class Outputs:
    """The outputs of commands, remembered. Threads may share it; several commands may run at once."""

    def __init__(self) -> None:
        """Nothing has run yet."""
        self._outcomes: dict[_Key, _Outcome] = {}
        self._locks: dict[_Key, threading.Lock] = {}
        self._version = 0

    def of(self, text: str, folder: Path, environ: Mapping[str, str], *, renew: bool = False) -> str:
        """A command's output, without its last line break. Raises `SettingsError`, which never shows stdout.

        The command runs in `folder`, with these variables. `renew`: an output of more than ten minutes ago is none.
        """
        outcome = self._up_to_date((tuple(split(text)), folder, frozenset(environ.items())), renew=renew)
        if outcome.failure:
            raise SettingsError(outcome.failure.message, hint=outcome.failure.hint)
        return outcome.output

    def forget_failures(self) -> None:
        """Forget failures, so that a failed command runs again when it is asked for next, and not before."""
        for key, outcome in list(self._outcomes.items()):
            if outcome.failure:
                self._outcomes.pop(key, None)

    def version(self) -> int:
        """Changes when a command, that ran again, printed something else, or succeeded. Returns at once.

        A command that failed a minute ago is tried again meanwhile, in a thread.
        """
        for key, outcome in list(self._outcomes.items()):
            if outcome.failure and _has_to_run(outcome) and not self._lock(key).locked():
                threading.Thread(target=self._up_to_date, args=(key,), name="command", daemon=True).start()
        return self._version

    def _up_to_date(self, key: _Key, *, renew: bool = False) -> _Outcome:
        with self._lock(key):
            before = self._outcomes.get(key)
            if before and not _has_to_run(before, renew=renew):
                return before
            outcome = _outcome(*key)
            if before and (before.output, bool(before.failure)) != (outcome.output, bool(outcome.failure)):
                self._version += 1
            self._outcomes[key] = outcome
            return outcome

    def _lock(self, key: _Key) -> threading.Lock:
        return self._locks.setdefault(key, threading.Lock())


def _has_to_run(outcome: _Outcome, *, renew: bool = False) -> bool:
    age = time.monotonic() - outcome.at
    return age > _FAILURE if outcome.failure else renew and age > _TOO_OLD


OUTPUTS = Outputs()
"""The outputs of this process."""


def _outcome(words: tuple[str, ...], folder: Path, environ: frozenset[tuple[str, str]]) -> _Outcome:
    try:
        output = _output(words, folder, dict(environ))
    except SettingsError as error:
        return _Outcome(time.monotonic(), failure=error)
    return _Outcome(time.monotonic(), output)


def _output(words: Sequence[str], folder: Path, environ: dict[str, str]) -> str:
    program = Path(words[0]).name
    code, printed, errors = _run(words, folder, environ)
    if len(printed) > _MOST:
        hint = "a secret is short: make the command print nothing else"
        raise SettingsError(f"${{cmd:...}} printed more than {_MOST // 1024} KiB", hint=hint, command=program)
    own_words = _last_line(errors, printed)
    if code is None:
        hint = (
            own_words or "unlock the vault, or sign in, before: the command cannot ask anything, as its stdin is closed"
        )
        raise SettingsError(f"${{cmd:...}} took longer than {_LIMIT:.0f} s", hint=hint, command=program)
    if code:
        hint = own_words or "it says nothing about that; try it in a terminal"
        raise SettingsError("${cmd:...} failed", hint=hint, command=program, exit=code)
    try:
        output = printed.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        hint = "make it print text; encode bytes, such as with base64"
        raise SettingsError("the output of ${cmd:...} is not UTF-8", hint=hint, command=program) from None
    if not output:
        hint = own_words or "make it print the value to stdout"
        raise SettingsError("${cmd:...} printed nothing", hint=hint, command=program)
    return output


def _run(words: Sequence[str], folder: Path, environ: dict[str, str]) -> tuple[int | None, bytes, bytes]:
    """Exit code, stdout and stderr. The code is None if the command was still running at the end of its time."""
    import subprocess

    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # without a terminal, a question fails at once; and all its processes can be ended
        )
    except (OSError, ValueError) as error:
        hint = "install it, or write its whole path; a relative one starts at the folder of the file it stands in"
        reason = error.strerror if isinstance(error, OSError) else "an argument has a zero byte"
        raise SettingsError("cannot run ${cmd:...}", hint=hint, reason=reason, command=Path(words[0]).name) from None
    try:
        return _wait(process)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def _wait(process: subprocess.Popen[bytes]) -> tuple[int | None, bytes, bytes]:
    """Wait for the command, not for processes that it leaves behind with its stdout."""
    from subprocess import TimeoutExpired

    deadline, has_ended = time.monotonic() + _LIMIT, False
    while True:
        try:
            printed, errors = process.communicate(timeout=_LOOK)
            return process.returncode, printed, errors
        except TimeoutExpired as so_far:
            printed, errors = so_far.stdout or b"", so_far.stderr or b""
            if has_ended or len(printed) > _MOST or time.monotonic() > deadline:
                return process.poll(), printed, errors
            has_ended = process.poll() is not None  # one more round: it may have printed just before


def _last_line(errors: bytes, printed: bytes) -> str:
    """The last line of stderr for a hint, without what stdout has; empty if there is none."""
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    mask = redactor(worth_hiding(printed.decode(errors="replace").splitlines()))
    text = "".join(letter if letter.isprintable() else " " for letter in mask.text(lines[-1]).strip())
    return f"it says: {text[:_SHOWN]}"
