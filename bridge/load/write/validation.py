"""The spool's copy of a SCHEMA: columns, and rules for `rejects.validate: full`. Segments are decoded by both."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from bridge.load.spool.folder import SpoolReader
from bridge.protocol.decode.decoder import Decoded, decode
from bridge.protocol.decode.validate import Rules
from bridge.protocol.schema.table_schema import TableSchema


def spooled_schema(spool: SpoolReader, name: str) -> TableSchema:
    """Read the columns of segments by their name in the spool."""
    return TableSchema.from_json(spool.read_schema(name))


def read_rules(spool: SpoolReader, schema: str, stream: str) -> Rules | None:
    """Read the rules of a spool's schema. Raises `DataError` if no record can be checked against them."""
    text = spool.read_rules(schema)
    return _compiled(text, stream) if text is not None else None


@lru_cache(100)
def _compiled(text: bytes, stream: str) -> Rules:
    return Rules(text, stream)


def decode_valid(
    data: bytes, schema: TableSchema, prefix: bytes | None, rules: Rules | None, *, envelope: bool = False
) -> Decoded:
    """`decode`, where lines that break a rule are rejects as well."""
    broken = rules.rejects(data) if rules else []
    if not broken:
        return decode(data, schema, prefix, envelope=envelope)
    rest, numbers = _without_lines(data, {reject.line for reject in broken})
    decoded = decode(rest, schema, prefix, envelope=envelope)
    others = [replace(reject, line=numbers[reject.line]) for reject in decoded.rejects]
    decoded.rejects = sorted([*broken, *others], key=lambda reject: reject.line)
    return decoded


def _without_lines(data: bytes, numbers: set[int]) -> tuple[bytes, list[int]]:
    """The other lines, and for each of them the number that it had."""
    rest = [
        (number, line) for number, line in enumerate(data.removesuffix(b"\n").split(b"\n")) if number not in numbers
    ]
    return b"".join(line + b"\n" for _, line in rest), [number for number, _ in rest]
