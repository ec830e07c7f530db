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
    """When a run fails rather than empty a table; null: never. Shares are between 0 and 1; null: not looked at."""

    rejected: Share = 0.5
    """Refuse an overwrite that rejects a larger share of its records, and a stream of which all are rejected."""
    shrink: Share = 0.9
    """Refuse an overwrite that lacks a larger share of the rows that the table has."""
