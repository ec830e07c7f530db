"""What may differ without a word of a run: what docs list as changed by a tap, and what is silent still."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .oracle import Finding

_DOCS = Path(__file__).parents[3] / "docs"
POSTGRES, MARIADB, WISE, MELTANO = "postgres", "mariadb", "postgres pipelinewise", "postgres meltanolabs"


class Entry(NamedTuple):
    """A difference of one column of one table; `tap` is how the trial's title begins."""

    tap: str
    table: str
    sort: str
    column: str


_LOG_DIGITS = ("postgres.md", "the first run names columns of more than 15 digits (`log_digits`)")


DOCUMENTED = {
    Entry(POSTGRES, "documents", "value", "b"): ("postgres.md", "| `null` inside a `json` or `jsonb` column |"),
    Entry(POSTGRES, "documents", "value", "j"): ("postgres.md", "| `null` inside a `json` or `jsonb` column |"),
    Entry(POSTGRES, "oddnumbers", "value", "n"): ("postgres.md", "| `NaN`, infinity in a `numeric`"),
    Entry(POSTGRES, "oddnumbers", "value", "f"): ("postgres.md", "| `NaN`, infinity in a `numeric`"),
    Entry(POSTGRES, "lastclock", "value", "c"): ("postgres.md", "| `time` `24:00` |"),
    Entry(MELTANO, "lastclock", "value", "i"): ("postgres.md", "| `interval` | string: that long after 1970 |"),
    Entry(MELTANO, "moments", "value", "i"): ("postgres.md", "| `interval` | string: that long after 1970 |"),
    Entry(WISE, "moments", "value", "z"): ("postgres.md", "the last millisecond of the year 9999, also in a key"),
    Entry(WISE, "endless", "value", "z"): ("postgres.md", "the last millisecond of the year 9999, also in a key"),
    Entry(WISE, "endless", "value", "t"): ("postgres.md", "the last millisecond of the year 9999, also in a key"),
    Entry(WISE, "momentkeys", "rows twice", ""): (
        "postgres.md",
        "the last millisecond of the year 9999, also in a key",
    ),
    Entry(WISE, "momentkeys", "rows missing", ""): (
        "postgres.md",
        "the last millisecond of the year 9999, also in a key",
    ),
    Entry(WISE, "momentkeys", "rows too many", ""): (
        "postgres.md",
        "the last millisecond of the year 9999, also in a key",
    ),
    **{
        Entry(MELTANO, "momentkeys", sort, column): ("postgres.md", "also in a key: two rows may become one")
        for sort, column in (("rows twice", ""), ("rows missing", ""), ("value", "name"), ("value", "updated_at"))
    },
    Entry(WISE, "moments", "value", "cz"): ("postgres.md", "| `timetz` | pipelinewise |"),
    **{
        Entry(WISE, "arrays", "value", column): ("postgres.md", "| an array column without a value | pipelinewise |")
        for column in "itnmz"
    },
    Entry(MARIADB, "kinds", "value", "bb"): ("mysql.md", "| `bit(10)`, any `bit` longer than one |"),
    Entry(MARIADB, "kinds", "value", "flag"): ("mysql.md", "| `tinyint(1)` with another value than 0 and 1 |"),
    Entry(MARIADB, "zerodates", "value", "d"): (
        "mysql.md",
        "| a `date` with a day or month of zero, from the binlog |",
    ),
    Entry(MARIADB, "exact", "value", "e"): ("mysql.md", "| a `float` from the binlog | a double of four bytes"),
    Entry(WISE, "finekeys", "stale", ""): _LOG_DIGITS,
    Entry(WISE, "finekeys", "rows too many", ""): _LOG_DIGITS,
    Entry(WISE, "retyped", "value", "w"): _LOG_DIGITS,
    **{  # two keys become one, so one row stands for two
        Entry("postgres meltanolabs-tap-postgres LOG_BASED", "finekeys", "value", column): _LOG_DIGITS
        for column in ("name", "updated_at")
    },
    Entry(MARIADB, "longtimes", "value", "c"): ("mysql.md", "| `time` of 24 hours and more, or below zero |"),
}
"""The tap changes these values before a run sees them: the page, and its words."""

STILL_SILENT = {
    Entry(
        MARIADB, "backdated", "rows missing", ""
    ): "said by the run after it, when the counts differ by more than ties",
}
"""What no run says and no page lists, each with the reason why it is so. The fewer, the better."""


def unknown(title: str, silent: list[Finding]) -> list[str]:
    """The silent differences that neither docs nor the list above name, one line each."""
    for page, words in DOCUMENTED.values():
        assert words in (_DOCS / page).read_text(), f"docs/{page} does not list it: {words}"
    found = {Entry(title, one.table, one.sort, one.column): str(one) for one in silent}
    return [
        text for entry, text in found.items() if not any(_covers(one, entry) for one in [*DOCUMENTED, *STILL_SILENT])
    ]


def _covers(listed: Entry, entry: Entry) -> bool:
    return entry.tap.startswith(listed.tap) and listed[1:] == entry[1:]
