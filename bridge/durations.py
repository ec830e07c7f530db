"""How long something is or was, for people. `bridge/settings/values/units.py` has the form of a settings file."""

from __future__ import annotations

from datetime import timedelta

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def duration(time: timedelta | float, units: int = 2) -> str:
    """A duration, or a number of seconds: `350 ms`, `4.2 s`, `5 s`, `2 h 10 min`, `3 d`; in at most so many units."""
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds < 0.0995:
        milliseconds = round(seconds * 1000)
        return f"{milliseconds} ms" if milliseconds > 0 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    left, parts = round(seconds), list[tuple[int, str]]()
    for unit, length in _UNITS:
        number, left = divmod(left, length)
        if number or parts:
            parts.append((number, unit))
    return " ".join(f"{number} {unit}" for number, unit in parts[:units] if number)
