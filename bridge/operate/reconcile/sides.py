"""The two sides of a comparison: a table of the lake, and what its source sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from bridge.protocol.schema.json_schema import DELETED_AT, VersionColumn, is_json, source

_METADATA = "_sdc_"
"""The prefix of columns that no source has."""


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of a table: the lake's, or as the source sent them."""

    rows: ds.Dataset
    columns: Mapping[str, Sequence[pa.Field]] = field(init=False)
    """Columns by their properties; of a property that changed its type there may be several."""

    def __post_init__(self) -> None:
        columns = defaultdict[str, list[pa.Field]](list)
        for one in self.rows.schema:
            if not VersionColumn.has(one):
                columns[source(one)].append(one)
        object.__setattr__(self, "columns", dict(columns))

    def own(self, key: Sequence[str]) -> list[str]:
        """The properties that a source may have."""
        return [name for name in self.columns if name in key or not name.startswith(_METADATA)]

    def sql(self, name: str) -> str:
        """A property's value in SQL; where it has several columns, as text."""
        names = [quoted(one.name) for one in self.columns[name]]
        texts = ", ".join(f"CAST({one} AS VARCHAR)" for one in names)
        return names[0] if len(names) == 1 else f"coalesce({texts})"

    def is_json(self, name: str) -> bool:
        """Whether a property's column holds the text of JSON."""
        return len(self.columns[name]) == 1 and is_json(self.columns[name][0])

    @property
    def live(self) -> str:
        """The condition for rows that are not marked as deleted, and of versions for those that are current."""
        if any(map(VersionColumn.has, self.rows.schema)):
            return quoted(VersionColumn.CURRENT)
        return f"{self.sql(DELETED_AT)} IS NULL" if DELETED_AT in self.columns else "true"


@dataclass(frozen=True, slots=True)
class Question:
    """One table to compare. Names are properties, as the tap calls them."""

    stream: str
    lake: Side
    source: Side
    key: Sequence[str]
    """Empty: rows are compared as they are."""
    replication_key: str = ""
    bookmark: Any = None
    """Rows of the source that have this replication key or a later one come with the next run."""
    values: bool = True
    """Compare all columns that both have, not only the replication key."""
    later: Side | None = None
    """The table as it is after the source has told all, if it has changed since `lake`."""
    later_bookmark: Any = None
    keeps_former: bool = False
    """The table is only added to: a key may have several rows, of which one is to be as the source has it."""

    @property
    def both(self) -> list[str]:
        """The properties that both sides have and that are compared."""
        return [name for name in self.source.own(self.key) if name in self.lake.columns]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"{}"'.format(name.replace('"', '""'))
