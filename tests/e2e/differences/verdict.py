"""Whether a run said what differs: the table by its name, and the sort of the difference."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .oracle import Finding

_WORDS = {
    "table missing": r".",
    "rows missing": r"null|missing|nor new ones|fewer|lack|never|reject|behind|not seen|digits|begins again|older"
    r"|no such table",
    "rows too many": r"delet|remov|more rows|truncat|stay|twice|emptied|replac|no such table",
    "rows twice": r"twice|doubl|no key",
    "stale": r"never seen|does not see|null|stale|behind|not seen|refus|older",
    "column missing": r".",
    "column too many": r".",
    "value": r".",
}
"""Of a column, its name must be there as well."""


@dataclass
class Heard:
    """All sentences of a pipeline's commands so far, and its rejects by stream."""

    sentences: list[str] = field(default_factory=list)
    rejects: dict[str, int] = field(default_factory=dict)

    def says(self, finding: Finding, stream: str) -> bool:
        """Whether one sentence names this table and this sort of difference."""
        if finding.sort in ("rows missing", "stale") and self.rejects.get(stream, 0):
            return True
        return any(_names(stream, finding, sentence) for sentence in self.sentences)


def _names(stream: str, finding: Finding, sentence: str) -> bool:
    if not _is_in(stream, sentence):
        return False
    rest = sentence.replace(stream, " ")
    if finding.column and not _is_in(finding.column, rest):
        return False
    return bool(re.search(_WORDS[finding.sort], rest, re.IGNORECASE))


def _is_in(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
