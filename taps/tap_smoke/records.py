"""Records: each is a pure function of (seed, stream, number), and of nothing else.

Plain streams are rendered by one `%` template a line, which is several times faster than a dict and a JSON encoder;
`Recipe.row` says what the same record is as a dict. A test holds both to the same bytes.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from tap_smoke import columns
from tap_smoke.messages import Dialect
from tap_smoke.settings import StreamSettings

REPLICATION_KEY = "id"
# each hazard of JSON text once: accents, quotes and backslash, astral plane, controls, a line separator, empty
NAMES = (
    *("Zoë Åström", "Łukasz Żak", "北京", "smile 😀", 'say "hi" \\ bye', "tab\tand\nnewline", "line\u2028end", ""),
    *("Ana", 'not a "type":"STATE"', "Дмитрий", "plain ascii name", "100%s", "José", "naïve café", "Ωmega {} []"),
)
TIMES = tuple(
    f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}T{i % 24:02d}:{i % 60:02d}:{i % 59:02d}+00:00" for i in range(512)
)
BASE: dict[str, dict[str, Any]] = {
    "id": {"type": "integer"},
    "n": {"type": ["integer", "null"]},
    "name": {"type": ["string", "null"]},
    "amount": {"type": ["number", "null"]},
    "active": {"type": ["boolean", "null"]},
    "at": {"type": ["string", "null"], "format": "date-time"},
}


def column_schemas(stream: StreamSettings) -> dict[str, dict[str, Any]]:
    """The schema of each column, as it is before a `schema_change`."""
    payload = {"payload": {"type": ["string", "null"]}} if stream.wide else {}
    return {**BASE, **payload, **(columns.SCHEMAS if stream.types else {})}


class Recipe:
    """Makes the records of one stream in one dialect. `selected` are its columns."""

    def __init__(
        self, seed: int, stream: StreamSettings, selected: set[str], dialect: Dialect, version: int | None
    ) -> None:
        self.stream, self.selected, self.dialect = stream, selected, dialect
        self._salt = crc32(f"{seed}/{stream.name}".encode())
        self._before, self._after = dialect.envelope(stream.name, version)
        special = stream.types or stream.schema_change or stream.extra_field or stream.bad_value
        whole = set(column_schemas(stream)) <= selected
        self._template = self._make_template() if whole and not special else None
        self._names = [dialect.text(name) for name in NAMES]
        self._payloads = (stream.wide + 7) // 8

    def schema(self, number: int) -> dict[str, Any]:
        """The JSON Schema that record `number` is under."""
        schemas = {name: schema for name, schema in column_schemas(self.stream).items() if name in self.selected}
        change = self.stream.schema_change
        if change and number >= change.at:
            if change.add:
                schemas[change.add] = {"type": ["integer", "null"]}
            elif change.retype in schemas:
                schemas[change.retype] = {"type": ["null", change.to]}
        return {"type": "object", "properties": schemas}

    def row(self, number: int) -> dict[str, Any]:
        """Record `number` as a dict."""
        mixed = self._mix(number)
        row: dict[str, Any] = {
            "id": number,
            "n": mixed,
            "name": NAMES[mixed >> 8 & 15],
            "amount": mixed % 100_000 / 100,
            "active": mixed & 64 > 0,
            "at": TIMES[mixed >> 12 & 511],
        }
        if self.stream.wide:
            row["payload"] = self._payload(mixed)
        if self.stream.types:
            row.update(columns.values(number, mixed))
        row = {name: value for name, value in row.items() if name in self.selected}
        self._disturb(row, number, mixed)
        return row

    def lines(self, first: int, end: int) -> str:
        """The RECORD lines of the numbers in [first, end)."""
        if self._template is None:
            before, after, text = self._before, self._after, self.dialect.text
            return "".join([before + text(self.row(number)) + after for number in range(first, end)])
        if self.stream.wide:
            return "".join(
                [self._template % (*self._values(n), self._payload(self._mix(n))) for n in range(first, end)]
            )
        return self._plain(self._template, first, end)

    def _plain(self, template: str, first: int, end: int) -> str:
        # `_mix` and `_values` written out: the calls would cost as much as the line
        salt, names, times = self._salt, self._names, TIMES
        return "".join(
            [
                template
                % (
                    number,
                    mixed := (number * 2654435761 + salt) & 0x7FFFFFFF,
                    names[mixed >> 8 & 15],
                    mixed % 100_000 / 100,
                    "true" if mixed & 64 else "false",
                    times[mixed >> 12 & 511],
                )
                for number in range(first, end)
            ]
        )

    def _values(self, number: int) -> tuple[Any, ...]:
        mixed = self._mix(number)
        name, at = self._names[mixed >> 8 & 15], TIMES[mixed >> 12 & 511]
        return number, mixed, name, mixed % 100_000 / 100, "true" if mixed & 64 else "false", at

    def _mix(self, number: int) -> int:
        return (number * 2654435761 + self._salt) & 0x7FFFFFFF

    def _payload(self, mixed: int) -> str:
        return (f"{mixed:08x}" * self._payloads)[: self.stream.wide]

    def _disturb(self, row: dict[str, Any], number: int, mixed: int) -> None:
        """Give this record what its stream's other records do not have."""
        change = self.stream.schema_change
        if change and number >= change.at:
            if change.add:
                row[change.add] = mixed % 1000
            elif change.retype in row:
                row[change.retype] = columns.retyped(row[change.retype], change.to)
        if number == self.stream.extra_field:
            row["surprise"] = "not in the schema"
        if number == self.stream.bad_value and "n" in row:
            row["n"] = "not a number"

    def _make_template(self) -> str:
        slots = [("id", "%d"), ("n", "%d"), ("name", "%s"), ("amount", "%r"), ("active", "%s"), ("at", '"%s"')]
        payload = [("payload", '"%s"')] if self.stream.wide else []
        before, after = self._before.replace("%", "%%"), self._after.replace("%", "%%")
        return before + self.dialect.join(slots + payload) + after
