"""The table of campaigns in docs/proof.md: one row each, which a new one replaces."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

from .campaigns import CAMPAIGNS

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
BEGIN, END = "<!-- made by: make nightly -->\n", "<!-- end of nightly -->"
_HEAD = "| campaign | tries | day | commit | ended | minutes | to repeat |\n|---|---|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Row:
    """How a campaign ended last. `commit` has a `+` behind it where files were changed."""

    campaign: str
    tries: str
    day: str
    commit: str
    ended: str
    minutes: str
    repeat: str

    def __str__(self) -> str:
        return f"| {' | '.join(astuple(self))} |"


def replaced(text: str, new: Row) -> str:
    """The page with one row more, or another one, in the order of the campaigns."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = {line.split(" | ")[0].lstrip("| "): line for line in table.splitlines()[2:]} | {new.campaign: str(new)}
    body = "".join(f"{lines[one.name]}\n" for one in CAMPAIGNS if one.name in lines)
    return f"{before}{BEGIN}{_HEAD}{body}{END}{after}"
