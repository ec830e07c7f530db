"""Each schema that a table had, and what changed from one to the next, from the commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bridge.lake.records import CommitRecord, TableState
from bridge.lake.table_columns import Entry, flat


@dataclass(frozen=True, slots=True)
class Version:
    """A schema of the table. `rows`: of the whole table after commit `n`, which gave it this schema.

    `added` and `removed` map columns to types, `changed` maps them to the type before and after. A field of a struct is
    `column.field`, the items of a list are `column[]`.
    """

    n: int
    at: str
    kind: str
    schema: str | None
    rows: int
    columns: dict[str, str]
    added: dict[str, str]
    changed: dict[str, tuple[str, str]]
    removed: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """The object that `tables history --json` prints it."""
        facts = {"commit": self.n} | asdict(self)
        facts["gone"] = facts.pop("removed")
        return facts


def schema_history(
    records: Iterable[CommitRecord], stream: str, columns: Callable[[str], list[Entry]]
) -> Iterator[Version]:
    """Yield the versions, oldest first. `records` come in the log's order; the first may have a snapshot."""
    table: TableState | None = None
    last: str | None = None
    before: dict[str, str] = {}
    for at, record in enumerate(records):
        snapshot = record.snapshot if at == 0 and record.snapshot else {}
        change = next((change for change in record.tables if change.stream == stream), None)
        if stream in snapshot:
            table = snapshot[stream]
        elif change:
            table = (table or TableState(change.folder, None)).after(change)
        if not table or table.schema == last:
            continue
        now = flat(columns(table.schema)) if table.schema else {}
        yield _version(record, table, before, now)
        last, before = table.schema, now


def _version(record: CommitRecord, table: TableState, before: dict[str, str], now: dict[str, str]) -> Version:
    return Version(
        n=record.n,
        at=record.at,
        kind=record.kind,
        schema=table.schema,
        rows=table.rows,
        columns=now,
        added={name: type_ for name, type_ in now.items() if name not in before},
        changed={name: (before[name], now[name]) for name in now if before.get(name, now[name]) != now[name]},
        removed={name: type_ for name, type_ in before.items() if name not in now},
    )
