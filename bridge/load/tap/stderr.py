"""Finds in the end of a tap's stderr the one line with the reason of a failure, and the lines that explain it.

Frames of tracebacks are folded. Lines at INFO and below are left out if there are others. Secrets are masked already.
The run's log has all lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bridge.errors import LAST_LINES

_SHOWN = 20
_LONGEST = 1000
"""Characters of a reason: a tap may print a whole response on one line."""
_FOLD = "  ..."
_EXCEPTION = re.compile(r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)[A-Za-z_][\w.]*: \S|[\w.]*(?:Error|Exception)$")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(pkg_resources|setuptools)'", re.MULTILINE)
_FRAME = re.compile(r'\s+(?:File ".*", line \d+|[\^~]+\s*$)')
_BOX = ("│", "╭", "╰")
"""How the lines of a traceback begin if the tap draws a frame around it."""
_TIME = r"[\d\WTZ_]*"
_NAME = r"(?:[\w.*-]+\s*[-|:]\s*)?"
_WHERE = rf"^(?:{_TIME}{_NAME}|.{{0,200}}?\blevel[\"']?\s*[=:]\s*[\"']?)"
"""Matches the text before a line's level: a time, a logger's name, or `level=` somewhere in it."""
_QUIET = re.compile(rf"{_WHERE}(?:TRACE|DEBUG|INFO|NOTICE|trace|debug|info|notice)\b")
_LOUD = re.compile(r"error|exception|critical|fatal|fail", re.IGNORECASE)
_WARNING = re.compile(rf"{_WHERE}(?:WARN|WARNING|warn|warning)\b|\S*:\d+: \w*Warning: ")
_MORE = re.compile(
    r"\s|LINE \d+:|(?:HINT|DETAIL|CONTEXT|QUERY|STATEMENT):|\[(?:SQL|parameters)\b|\(Background on this error"
)
"""How lines begin that follow an error and explain it."""


def reason(text: str) -> str:
    """Why a tap failed, on one line: that of its exception, else its last one, but no warning if there are
    others; empty if it wrote nothing."""
    lines = list(_folded(text))
    shown = [line for line in lines if line.strip() and line != _FOLD]
    raised = [line for line in shown if _EXCEPTION.match(line)] if _FOLD in lines else []
    loud = [line for line in shown if not _is_quiet(line)]
    errors = [line for line in loud if not _WARNING.match(line) and not _MORE.match(line)]
    why = (raised or errors or loud or shown or [""])[-1].strip()
    return why if len(why) <= _LONGEST else why[: _LONGEST - 3] + "..."


def last_words(text: str) -> str:
    """A hint with the lines that tell why a tap failed, whole: errors first, then warnings.

    If a tap wrote only lines at INFO and below, its last ones.
    """
    lines = list(_folded(text.strip("\n").rstrip()))  # not stripped on the left: the first line may be a frame's
    shown = "\n".join(_telling(lines) or lines[-_SHOWN:])
    if not shown:
        return "it wrote nothing to stderr"
    missing = _MISSING.search(text)
    package = {"pkg_resources": "setuptools<81"}.get(missing[1], missing[1]) if missing else ""
    remedy = f"it needs {package}, and does not say so: write that behind its name in pip_url\n" if package else ""
    return f"{remedy}{LAST_LINES}\n{shown}"


def _is_quiet(line: str) -> bool:
    """Whether a line is at INFO or below. `Error: INFO schema` is not: a name stands before the level."""
    start = _QUIET.match(line)
    return start is not None and not _LOUD.search(start[0])


def _telling(lines: Sequence[str]) -> list[str]:
    """The lines above INFO: the latest errors and lines without a level, then warnings if there is room."""
    louder = [line for line in lines if not _is_quiet(line)]
    warnings = [line for line in louder if _WARNING.match(line)]
    errors = [line for line in louder if not _WARNING.match(line)]
    if not any(line.strip() for line in errors):
        return warnings[-_SHOWN:]
    errors = errors[-_SHOWN:]
    room = _SHOWN - len(errors)
    return errors + (warnings[-room:] if room else [])


def _folded(text: str) -> Iterator[str]:
    inside = folded = False
    for line in text.splitlines():
        inside = (inside and line[:1] in (" ", "\t")) or _FRAME.match(line) is not None
        noise = inside or line.startswith(_BOX)
        if noise and not folded:
            yield _FOLD
        elif not noise:
            yield line
        folded = noise
        inside = inside or line.startswith("Traceback (most recent call last)")
