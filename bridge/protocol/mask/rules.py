"""Which fields are masked, and how: globs of a stream's name and a path, `*.email` or `customers.address.street`.

`*` stands for any characters, dots among them, so `*.email` is every field called `email`, however deep. Items of an
array have the array's path. Case does not matter: a field that is masked by mistake is a lesser evil than one that is
not. Of several globs the last one that matches counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

KEEP = "keep"
DROP = "drop"
HASH = "hash"
YEAR = "year"

_MOST_NAMES = 10_000
"""Names of an object that are remembered."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A glob in lower case, and what becomes of values at the paths that match it."""

    glob: str
    action: str

    def after(self, places: frozenset[int], text: str) -> frozenset[int]:
        """The places of the glob that are reached from `places` by a text."""
        now = self._closed(places)
        for character in text:
            moved = (place if self.glob[place] == "*" else place + 1 for place in now if self._takes(place, character))
            now = self._closed(moved)
        return now

    def is_met(self, places: frozenset[int]) -> bool:
        """Whether the glob ends at one of these places."""
        return len(self.glob) in places

    def _takes(self, place: int, character: str) -> bool:
        return place < len(self.glob) and self.glob[place] in ("*", character)

    def _closed(self, places: Iterable[int]) -> frozenset[int]:
        """These places, and those behind a `*` that may stand for nothing."""
        waiting, reached = list(places), set[int]()
        while waiting:
            place = waiting.pop()
            reached.add(place)
            if place < len(self.glob) and self.glob[place] == "*":
                waiting.append(place + 1)
        return frozenset(reached)


@dataclass(slots=True)
class Members:
    """The members of the objects at one path: how far each rule's glob is met there."""

    rules: Sequence[Rule]
    places: Sequence[frozenset[int]]
    _decided: dict[str, tuple[str, Members | None]] = field(default_factory=dict)

    def of(self, name: str) -> tuple[str, Members | None]:
        """The action for a member, and the members below it; None: nothing there is masked."""
        if name not in self._decided:
            if len(self._decided) >= _MOST_NAMES:
                self._decided.clear()
            self._decided[name] = self._of(name.casefold())
        return self._decided[name]

    def _of(self, name: str) -> tuple[str, Members | None]:
        reached = [rule.after(places, name) for rule, places in zip(self.rules, self.places, strict=True)]
        met = [rule.action for rule, places in zip(self.rules, reached, strict=True) if rule.is_met(places)]
        return met[-1] if met else KEEP, self._below(reached)

    def _below(self, reached: Sequence[frozenset[int]]) -> Members | None:
        below = [rule.after(places, ".") for rule, places in zip(self.rules, reached, strict=True)]
        return Members(self.rules, below) if any(below) else None


def members_of(masks: Mapping[str, str], names: Sequence[str]) -> Members | None:
    """The members of a stream's records, which has these names; None if no mask is for it."""
    rules = [Rule(glob.casefold(), action) for glob, action in masks.items()]
    starts = [
        frozenset().union(*(rule.after(frozenset([0]), f"{name.casefold()}.") for name in names)) for rule in rules
    ]
    return Members(rules, starts) if any(starts) and any(rule.action != KEEP for rule in rules) else None
