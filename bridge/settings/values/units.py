"""Sizes and durations as a settings file writes them: `256MiB`, `5m`.

Sizes are IEC only: `MB` is a million bytes to one reader and 1,048,576 to the next, so it is refused, not guessed.
"""

from __future__ import annotations

import re
from datetime import timedelta

from bridge.errors import SettingsError

MIB = 1024**2
GIB = 1024**3

_FACTORS = {"": 1, "B": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB, "TiB": 1024**4}
SIZE = "^[0-9]{1,18} ?(B|KiB|MiB|GiB|TiB)?$"
_SIZE = re.compile(r"([0-9]{1,18}) ?(B|KiB|MiB|GiB|TiB)?")
_LOOSE_SIZE = re.compile(r"[0-9.]+ ?([kmgt])i?b?", re.IGNORECASE)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
DURATION = "^[0-9]{1,9}[smhd]$"
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
# timedelta itself reaches 2.7 million years, but `now - duration` has to stay a date.
_LONGEST = timedelta(days=36500)


def parse_size(text: str | int) -> int:
    """The size in bytes: `256MiB`, `4GiB`, or a plain number of bytes. Raises SettingsError."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match:
        return int(match[1]) * _FACTORS[match[2] or ""]
    loose = _LOOSE_SIZE.fullmatch(text) if isinstance(text, str) else None
    unit = f"{loose[1].upper()}iB" if loose else "MiB"
    raise SettingsError("not a size", hint=f"write {unit}: a whole number of KiB, MiB, GiB or TiB, such as 256{unit}")


def parse_duration(text: str) -> timedelta:
    """The duration of a whole number of s, m, h or d, such as `5m`. Raises SettingsError."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise SettingsError("not a duration", hint="write a whole number with s, m, h or d, such as 60s, 5m, 2h, 90d")
    duration = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if duration > _LONGEST:
        raise SettingsError("duration of more than a hundred years", hint="write at most 36500d")
    return duration


def size_text(size: int) -> str:
    """The size as a settings file writes it, in the largest unit that leaves no fraction."""
    unit = next(unit for unit in ("TiB", "GiB", "MiB", "KiB", "B") if size % _FACTORS[unit] == 0)
    return f"{size // _FACTORS[unit]}{unit}"


def duration_text(duration: timedelta) -> str:
    """The duration as a settings file writes it, in the largest unit that leaves no fraction."""
    seconds = int(duration.total_seconds())
    length, unit = next((n, unit) for n, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")) if seconds % n == 0)
    return f"{seconds // length}{unit}"
