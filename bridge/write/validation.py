"""Segments decoded, and where `rejects.validate` is `full`, held against the rules of their SCHEMA before."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bridge.decode.decoder import Decoded, decode
from bridge.decode.validate import Rules, without
from bridge.schema.table_schema import TableSchema

RULES = ".rules"
"""At the end of the name under which the spool keeps the rules of a schema, if there are any."""


def read_rules(spool: Path, schema: str, stream: str) -> Rules | None:
    """Return the rules of a spool's schema. Raises `DataError` if nothing can be held against them."""
    file = spool / "schemas" / f"{schema}{RULES}"
    return _compiled(file.read_bytes(), stream) if file.exists() else None


@lru_cache(100)
def _compiled(text: bytes, stream: str) -> Rules:
    return Rules(text, stream)


def decode_valid(data: bytes, schema: TableSchema, prefix: bytes | None, rules: Rules | None, **told: Any) -> Decoded:
    """Return `decode(data, schema, prefix, ...)`, for which lines that break a rule are rejects."""
    broken = rules.rejects(data) if rules else []
    if not broken:
        return decode(data, schema, prefix, **told)
    rest, numbers = without(data, broken)
    found = decode(rest, schema, prefix, **told)
    others = [replace(reject, line=numbers[reject.line]) for reject in found.rejects]
    found.rejects = sorted([*broken, *others], key=lambda reject: reject.line)
    return found
