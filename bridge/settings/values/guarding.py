"""`guard`: which overwrites are refused, so that a table is never emptied in silence."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

from bridge.settings.values.section import Section

Share = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None,
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}]}),
]


class Guard(Section):
    """When a run fails instead of emptying a table; `null`: never. Shares are between 0 and 1."""

    rejected: Share = 0.5
    """An overwrite that rejects a larger share of its records keeps the old table, and the run fails; so does a stream
    whose records are all rejected. `null`: never."""
    shrink: Share = 0.9
    """An overwrite that lacks a larger share of the table's rows keeps the old table, and the run fails; so does a
    merge that drops a larger share, as many rows have one key. `null`: never."""

    def is_shrunk(self, before: int, after: int) -> bool:
        """Whether a table of so many rows may not become one of so few."""
        return self.shrink is not None and before - after > self.shrink * before
