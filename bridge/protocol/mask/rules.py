"""Which fields are masked, and how: globs of a stream's name and a path, `*.email` or `customers.address.street`.

`*` stands for any characters, dots among them, so `*.email` is every field called `email`, however deep. Items of an
array have the array's path. Case does not matter: a field that is masked by mistake is a lesser evil than one that is
not. Of several globs the last one that matches counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KEEP = "keep"
DROP = "drop"
HASH = "hash"
YEAR = "year"

_MOST_NAMES = 10_000
"""Paths whose mask is remembered."""


def folded(name: str) -> str:
    """A name without its case, in one of the ways that Unicode has to write it."""
    return unicodedata.normalize("NFC", name).casefold()


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("".join(".*" if one == "*" else re.escape(one) for one in glob), re.DOTALL)


def _may_meet(glob: str, stream: str) -> bool:
    """Whether some path of a stream meets a glob: a part of it meets the name and the dot behind it."""
    return any(_pattern(glob[:end]).fullmatch(f"{stream}.") for end in range(len(glob) + 1))


@dataclass(slots=True)
class Members:
    """The masks of a stream's fields, by their paths below one of the stream's `names`."""

    masks: Mapping[str, str]
    names: Sequence[str]
    met: set[str] = field(default_factory=set)
    """The globs that a field met."""
    _rules: list[tuple[str, re.Pattern[str], str]] = field(init=False)
    _decided: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rules = [(glob, _pattern(folded(glob)), action) for glob, action in self.masks.items()]

    def of(self, path: str) -> str:
        """The action for the field at a dotted path."""
        if path not in self._decided:
            if len(self._decided) >= _MOST_NAMES:
                self._decided.clear()
            self._decided[path] = self._of(folded(path))
        return self._decided[path]

    def _of(self, path: str) -> str:
        action = KEEP
        for glob, pattern, masked in self._rules:
            if any(pattern.fullmatch(f"{name}.{path}") for name in self.names):
                self.met.add(glob)
                action = masked
        return action


def members_of(masks: Mapping[str, str], names: Sequence[str]) -> Members | None:
    """The masks of a stream with these names; None if no mask is for it."""
    streams = [folded(name) for name in names]
    for glob, action in masks.items():
        if action != KEEP and any(_may_meet(folded(glob), name) for name in streams):
            return Members(masks, streams)
    return None
