"""Values that are not in the lake as the tap sent them: counted by the workers, said once a column after the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bridge.lake.runs import Difference
from bridge.protocol.decode.changed import BAD_TIME, DELETION_TIME, LOST_DIGITS, NULL_KEY
from bridge.protocol.schema.merging import label
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.schema.widening import texts_made
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline

TEXT_COLUMN = "text_column"
"""The kind of a difference: numbers, times or booleans that are text from now on."""
_UNLESS = "If that is not meant, correct the type in the tap's settings or catalog, then"
_EXACT = "give it multipleOf in the catalog, such as 0.01 for two digits after the point (docs/types.md), then"
COMPLETE = "Set `replication_method: FULL_TABLE, load_method: auto` for the stream, or another replication_key"
"""The advice for rows without a replication key."""


@dataclass(slots=True)
class ChangedValues:
    """The values of one stream that one run changed or found null."""

    texts: dict[str, str] = field(default_factory=dict)
    """Columns that become text, and how."""
    values: dict[str, Counter[str]] = field(default_factory=dict)
    """By kind and column, how many values came that the column cannot give back."""

    def count(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add what a worker counted, by kind and column."""
        for kind, columns in counts.items():
            self.values.setdefault(kind, Counter()).update(columns)

    def differences(self, pipeline: Pipeline, stream: str, *, piped: bool) -> Iterator[Difference]:
        """A sentence for each column. `piped`: another program starts the tap."""
        again = reload(pipeline, [stream], piped=piped, mark="`")
        for text in self.texts.values():
            yield Difference(stream, TEXT_COLUMN, f"{text}. {_UNLESS} {again}")
        for kind, columns in self.values.items():
            for column, count in sorted(columns.items()):
                yield Difference(stream, kind, f"{column}: {_counted(kind, count, again)}", count)

    @property
    def null_keys(self) -> Counter[str]:
        """How many rows lack the value that would tell when they change, by its column."""
        return self.values.get(NULL_KEY, Counter())


def text_columns(before: TableSchema, after: TableSchema) -> dict[str, str]:
    """The columns of a table that a SCHEMA makes text, each with a sentence for people."""
    return {
        name: f"{name} changes from {label(old)} to {label(new)}: its values are text from now on, also the older ones"
        for name, old, new in texts_made(before.arrow, after.arrow)
    }


def _counted(kind: str, count: int, again: str) -> str:
    if kind == NULL_KEY:
        rows = f"{count:,} row{' has' if count == 1 else 's have'}"
        unseen = "an incremental run does not see them again when they change, nor new ones like them"
        return f"{rows} none, so {unseen}. {COMPLETE}, then {again}"
    values = f"{count:,} value{'' if count == 1 else 's'}"
    if kind == LOST_DIGITS:
        return f"{values} lost digits, as a double holds 15 to 17; {_EXACT} {again}"
    if kind == BAD_TIME:
        texts = f"{count:,} text{' is' if count == 1 else 's are'}"
        return f"{texts} no time, so null was stored. To keep such records as rejects, set `on_bad_time: reject`"
    if kind == DELETION_TIME:
        rows = f"{count:,} row{' was' if count == 1 else 's were'}"
        return f"{rows} deleted with a mark that is no time: they count as deleted when they came"
    return f"{values} changed: see the list of conversions in docs/types.md"
