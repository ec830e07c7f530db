"""Columns of types that a tap does not know: it declares them, and sends nothing or null."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from bridge.lake.runs import Difference
from bridge.singer.catalog import Catalog, column_facts, entries_by_name


def not_extracted(catalog: Catalog | None, new: AbstractSet[str]) -> Iterator[Difference]:
    """One of each new table that has such columns. Said once: `new` are the streams that the lake did not have."""
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(new & entries.keys()):
        facts = column_facts(entries[name])
        columns = [".".join(path) for path in facts if facts[path].get("inclusion") == "unsupported"]
        if columns:
            text = (
                f"the tap cannot extract {', '.join(columns)}: the lake has no value of them. To load them, make a "
                "view in the database that casts them to text, and select the view"
            )
            yield Difference(name, "unsupported_column", text)
