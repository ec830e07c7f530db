"""Text from outside, such as a stream's name or a tap's log: it is printed, but cannot control the terminal."""

from __future__ import annotations

import re
from typing import IO, Any

import click

# C0 and C1, in which every escape sequence begins; the end of a line and the tab are text. No output takes a surrogate.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|\r(?!\n)")


def plain(text: str) -> str:
    r"""The text with control characters written as `\x1b`: they could clear a screen or rename its window."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def plain_json(text: str) -> str:
    """Escape the control characters that JSON itself allows. The document means the same."""
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str, *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print a text. Only the sequences of `click.style` reach the terminal."""
    click.secho(plain(text), err=err, nl=nl, **style)


class PlainLines:
    """Prints a tap's stderr on ours."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def write(self, data: bytes) -> None:
        """Print whole lines, or a part of a line."""
        self._out.write(plain(data.decode("utf-8", "replace")).encode())

    def flush(self) -> None:
        self._out.flush()
