"""How a bookmark moved, for people: the value before and after, of each part that has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.exact_json import dumps
from bridge.protocol.singer.order import is_before
from bridge.protocol.singer.state_edits import contexts_of, same

_WIDEST = 40
"""Characters of a bookmark."""
_NOTES = frozenset({"last_replication_method", "replication_key", "version", "context"})
"""Keys that taps write into a bookmark beside the position; all that PipelineWise's have of a FULL_TABLE stream."""
_IN_FLIGHT = frozenset({"progress_markers", "replication_key_signpost", "starting_replication_value"})


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a stream's bookmark, or of the part of it that belongs to a context."""

    before: str
    """`the beginning` if there was none."""
    after: str
    context: str = ""
    """Such as `repo a/b`; empty where the bookmark has no parts."""

    def of(self, stream: str) -> str:
        """The stream, with the context."""
        return f"{stream} ({self.context})" if self.context else stream


def short_bookmark(value: Any) -> str:
    """A bookmark's value, cut to a width; all values where there are several. Empty if it has no position.

    Of one with a part for each of several contexts, how many there are, and the highest value.
    """
    if contexts := contexts_of(value):
        parts = value["partitions"]
        return (
            (short_bookmark(parts[0]) or "1 partition")
            if len(contexts) == 1
            else f"{len(contexts):,} partitions{_up_to(parts)}"
        )
    return shortened(_position(value))


def _up_to(parts: list[Any]) -> str:
    """The highest of their values; empty where they cannot be compared."""
    values = [one for one in map(_position, parts) if one is not None]
    highest = values[0] if values else None
    for value in values:
        is_higher = is_before(highest, value)
        if is_higher is None:
            return ""
        highest = value if is_higher else highest
    return "" if highest is None else f", up to {shortened(highest)}"


def moves(before: Any, after: Any) -> list[Move]:
    """How a stream's bookmark moved from one value to another; empty if it did not, or has no position."""
    if contexts_of(after):
        return _moved_parts(before, after)
    old, new = _position(before), _position(after)
    if isinstance(old, dict) and isinstance(new, dict):  # several values: those that moved
        changed = [key for key in new if key not in old or not same(old[key], new[key])]
        old, new = ({key: one[key] for key in changed if key in one} for one in (old, new))
        old, new = (_only(one) for one in (old, new)) if len(changed) == 1 else (old, new)
    if same(old, new) or new in (None, {}, []):
        return []
    return [Move(shortened(old or None) or "the beginning", shortened(new))]


def _moved_parts(before: Any, after: dict[str, Any]) -> list[Move]:
    parts = before["partitions"] if contexts_of(before) else []
    earlier = {dumps(part.get("context")): part for part in parts if isinstance(part, dict)}
    result = []
    for part in after["partitions"]:
        old = earlier.get(dumps(part.get("context"))) if isinstance(part, dict) else None
        if isinstance(part, dict) and (old is None or not same(old, part)):
            context = part.get("context")
            name = ", ".join(f"{key} {shortened(value)}" for key, value in context.items()) if context else "no context"
            one = moves(None if old is None else _position(old), _position(part))
            result += [Move(each.before, each.after, name) for each in one]
    return result


def _position(value: Any) -> Any:
    """The part of a bookmark that says where a tap goes on: a value, an object of several, or None."""
    if isinstance(value, dict) and value.get("replication_key_value") is not None:
        return value["replication_key_value"]
    if not isinstance(value, dict):
        return value
    left_out = _NOTES | _IN_FLIGHT
    position = {key: each for key, each in value.items() if key not in left_out and each is not None}
    return _only(position) if len(position) == 1 else position or None


def _only(value: dict[str, Any]) -> Any:
    return next(iter(value.values()), None)


def shortened(value: Any) -> str:
    """A value as text, cut to a width; empty for None."""
    text = value if isinstance(value, str) else "" if value is None else dumps(value).decode().strip()
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
