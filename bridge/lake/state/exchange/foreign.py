"""The part that all formats share; it recognizes by the shape of a document which tool wrote it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """A person's request. `which` is the name of a STATE where a file holds several."""

    which: str | None = None
    streams: Collection[str] = ()
    """Only these, as the tap calls them; empty for all."""
    tap: str | None = None
    """The tap whose own positions are converted."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A STATE, or another tool's document, that a conversion results in, and what a person has to know of it."""

    value: Any
    notes: tuple[str, ...] = ()


def tool_of(document: Any) -> str:
    """`meltano`, `olake`, or `singer` for everything else."""
    if not isinstance(document, dict):
        return "singer"
    if document.get("type") in ("STREAM", "GLOBAL", "MIXED") and ("streams" in document or "global" in document):
        return "olake"
    inner = document.values()
    if "singer_state" in document or _is_split(document) or (inner and all(map(_is_split, inner))):
        return "meltano"
    return "singer"


def _is_split(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and value.keys() <= {"completed", "partial"}


def expect(document: Any, tool: str) -> None:
    """Raise `SettingsError` when the document is another tool's."""
    actual = tool_of(document)
    if actual != tool:
        origin = "what taps and targets write" if actual == "singer" else f"a file of {actual}"
        hint = f"import it with --format {actual}"
        raise SettingsError(f"this is no STATE as {tool} keeps it, but {origin}", hint=hint)


def one_of(names: Sequence[str], which: str | None, what: str, where: str | Path) -> str:
    """The name that was asked for, or the only one. Raises `SettingsError` that lists them."""
    if which in names:
        return str(which)
    if which is None and len(names) == 1:
        return names[0]
    hint = f"give --id, one of: {', '.join(sorted(names))}" if names else "check the path"
    raise SettingsError(f"which {what}?", hint=hint, **{"file": where} | ({"id": which} if which else {}))
