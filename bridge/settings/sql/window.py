"""The window of time in a view: how long its groups are kept, and when they close.

`keep` and `lateness` of a view stand behind its SELECT as a comment, so the text that the log keeps says all of it:

```sql
SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY hour
-- singer-bridge: keep: 7d, lateness: 5m
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bridge.errors import SettingsError
from bridge.settings.sql.tokens import Token, split, tokens_of
from bridge.settings.sql.transform import Kind, microseconds
from bridge.settings.values.units import parse_duration

_TERMS = re.compile(r"\n-- singer-bridge:(?: keep: (\w+))?,?(?: lateness: (\w+))?\s*$")
_WINDOW, _SESSION = (
    re.compile(rf"{name}\s*\((.*)\)\s*\.\s*`?(start|end)`?", re.IGNORECASE | re.DOTALL)
    for name in ("window", "session_window")
)
_HINT = "such as: SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY hour"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The window that is a key of a view, and how long its groups are kept and wait for rows."""

    key: str
    """The view's column: where the window starts, or where it ends."""
    time: str
    """The time of a row, in the view's own words."""
    to_end: int
    """Microseconds from the key to the end of the window."""
    keep: timedelta | None
    lateness: timedelta | None

    def expired(self, latest: int) -> int | None:
        """The moment up to which windows have ended that are kept no longer; None: all are kept.

        All moments are microseconds since 1970; `latest` is the greatest time of a row that ever came.
        """
        return None if self.keep is None else latest - self.keep // timedelta(microseconds=1)

    def closed(self, latest: int) -> int | None:
        """The moment up to which windows have ended that are closed; None: none ever closes."""
        return None if self.lateness is None else latest - self.lateness // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """The session that is a key of a view: rows with the same other keys that follow each other within the gap."""

    gap: int
    """Microseconds. A row that is as long after the one before is of the same session."""
    starts: tuple[str, ...]
    """The view's columns with the time of the first row."""
    ends: tuple[str, ...]
    """The view's columns with the time of the last row, and the gap behind it."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self.starts + self.ends


def session_of(keys: Sequence[tuple[str, str]], kind: Kind) -> SessionWindow | None:
    """The session among these keys of a view, each a name and its expression. Raises `SettingsError` for several."""
    sessions = {name: matched for name, text in keys if (matched := _SESSION.fullmatch(text.strip()))}
    if not sessions:
        return None
    if len({" ".join(words_of(one[1])).lower() for one in sessions.values()}) > 1:
        raise kind.refused("two sessions in one view", "write two views")
    if any(re.search(r"\bwindow\s*\(", text, re.IGNORECASE) for _, text in keys):
        raise kind.refused("a session beside a window", "write date_trunc('hour', at) AS hour instead of the window")
    if len(sessions) == len(keys):
        hint = "such as customer_id; 'all' AS scope is one, too, and then each commit reads the whole table"
        raise kind.refused("a session needs another key", hint)
    arguments = split(tokens_of(next(iter(sessions.values()))[1]))
    if len(arguments) != 2 or not (gap := _length(arguments)):
        raise kind.refused("the gap of a session is a length of time", "such as session_window(at, '30 minutes').start")
    starts, ends = ([name for name, one in sessions.items() if one[2].lower() == part] for part in ("start", "end"))
    return SessionWindow(gap, tuple(starts), tuple(ends))


def _length(arguments: Sequence[Sequence[Token]]) -> int | None:
    """The second argument of a window in microseconds; None: it is no length of time that is always the same."""
    return microseconds(arguments[1][0].text) if len(arguments) > 1 and len(arguments[1]) == 1 else None


def with_terms(select: str, keep: str | None, lateness: str | None) -> str:
    """The text of a view with these durations."""
    terms = [f"{name}: {value}" for name, value in (("keep", keep), ("lateness", lateness)) if value is not None]
    return f"{select.rstrip()}\n-- singer-bridge: {', '.join(terms)}" if terms else select


def words_of(text: str) -> list[str]:
    """The words of a view's SELECT, whatever stands between them, without its durations."""
    return [token.text for token in tokens_of(_TERMS.sub("", text))]


def time_window(text: str, keys: Iterable[tuple[str, str]], session: SessionWindow | None = None) -> TimeWindow | None:
    """The window of a view with this text and these keys, each a name and its expression; None: it has no durations.

    Raises `SettingsError` if no key is a window of time, or if groups would go before they close.
    """
    terms = _TERMS.search(text)
    keep, lateness = (parse_duration(one) if one else None for one in terms.groups()) if terms else (None, None)
    if keep is None and lateness is None:
        return None
    if session:
        hint = "leave keep and lateness out; or use a window of a fixed length, which no row makes longer"
        raise SettingsError("a session never closes: a row may still join it, or make two of them one", hint=hint)
    if keep is not None and lateness is not None and keep < lateness:
        raise SettingsError(
            "keep is shorter than lateness", hint="a window closes before it is dropped: set a longer keep"
        )
    for name, expression in keys:
        if matched := _WINDOW.fullmatch(expression.strip()):
            arguments = split(tokens_of(matched[1]))
            if length := _length(arguments):
                time = arguments[0]
                words = matched[1][time[0].start : time[-1].end + 1]
                to_end = length if matched[2].lower() == "start" else 0
                return TimeWindow(name, words, to_end, keep, lateness)
    raise SettingsError("keep and lateness need a key that is a window of time as it stands", hint=_HINT)
