"""What a tap said last: the one line that is its reason, and its last lines without the noise of tracebacks.

Secrets are masked before. The whole of it is in the run's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["SAID", "last_words", "reason"]

SAID = "its last lines on stderr:"

_SHOWN = 20
_LONGEST = 170  # of a reason: with what stands around it, it is one cell of a table
_FOLD = "  ..."
_EXCEPTION = re.compile(r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):)[A-Za-z_][\w.]*: \S|[\w.]*(?:Error|Exception)$")
_FRAME = re.compile(r'\s+(?:File ".*", line \d+|[\^~]+\s*$)')
_BOX = ("│", "╭", "╰")
"""How lines of a traceback begin that a tap prints in a frame."""


def reason(text: str) -> str:
    """Return why a tap failed, on one line: its exception's, else its last one; empty if it said nothing."""
    lines = list(_folded(text))
    shown = [line for line in lines if line.strip() and line != _FOLD]
    raised = [line for line in shown if _EXCEPTION.match(line)] if _FOLD in lines else []
    found = (raised or shown or [""])[-1].strip()
    return found if len(found) <= _LONGEST else found[: _LONGEST - 3] + "..."


def last_words(text: str) -> str:
    """Return a hint with the tap's last lines, in which the frames of a traceback are one line, `...`."""
    shown = "\n".join(list(_folded(text.strip("\n").rstrip()))[-_SHOWN:])  # indented, a first line may be a frame's
    return f"{SAID}\n{shown}" if shown else "it wrote nothing to stderr"


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
