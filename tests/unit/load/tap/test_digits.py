"""The digits of a database's columns get into the catalog by themselves, and stay there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bridge.load.tap.catalog_store import CatalogStore
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.digits import with_digits, with_known_digits
from bridge.protocol.schema.table_schema import from_singer
from tests.unit.load.run.test_table_plan import pipeline

NUMBER = {"type": ["null", "number"]}


def catalog(types: dict[str, str], **schemas: Any) -> dict[str, Any]:
    """A stream with columns of these SQL types, each declared as a plain number."""
    properties = {name: dict(NUMBER) for name in types} | schemas
    metadata = [{"breadcrumb": ["properties", name], "metadata": {"sql-datatype": t}} for name, t in types.items()]
    return {"streams": [{"tap_stream_id": "t", "schema": {"properties": properties}, "metadata": metadata}]}


def database(tap: str) -> SourceDatabase:
    return SourceDatabase(pipeline({}), [tap])


def columns(made: dict[str, Any]) -> dict[str, str]:
    fields = from_singer(made["streams"][0]["schema"], []).fields
    return {field.name: str(field.type) for field in fields}


TYPES = {
    "decimal(10,2)": "decimal128(38, 2)",
    "DECIMAL(10, 2) unsigned": "decimal128(38, 2)",
    "numeric(30,0)": "decimal128(38, 0)",
    "NUMBER(38)": "decimal128(38, 0)",
    "number(38,10)": "decimal128(38, 10)",
    "decimal(30,25)": "decimal128(30, 25)",
    "decimal(65,30)": "string",
    "number(5,-2)": "decimal128(38, 0)",
    "decimal": "double",
    "double": "double",
    "float(10,2)": "double",
}


@pytest.mark.parametrize("sql", TYPES)
def test_what_the_catalogs_metadata_tell(sql: str) -> None:
    """Every value of the type fits the column; a type without a scale is left to the tap."""
    made, notes = with_digits(database("tap-mysql"), catalog({"a": sql}))
    assert (columns(made), notes) == ({"a": TYPES[sql]}, [])


def test_what_the_tap_says_stands() -> None:
    """Its own multipleOf, and what is no number."""
    own = {"a": NUMBER | {"multipleOf": 0.1}, "s": {"type": "string"}}
    given = catalog({}, **own)
    given["streams"][0]["metadata"] = [
        {"breadcrumb": ["properties", name], "metadata": {"sql-datatype": "decimal(10,2)"}} for name in own
    ]
    assert with_digits(database("tap"), given)[0] == given


def test_later_discoveries_keep_them(tmp_path: Path) -> None:
    """A run that asks the tap for its types does not ask the database, and must not forget the digits."""
    store, raw = CatalogStore(tmp_path, pipeline({})), catalog({"a": "numeric(10,2)", "b": "double"})
    digits, _ = with_digits(database("tap"), raw)
    store.merged(digits)
    assert store.updated(raw, ["t"], {}) == []
    stored = store.merged(raw)
    assert columns(stored.catalog) == {"a": "decimal128(38, 2)", "b": "double"}
    assert not stored.lines()
    assert with_known_digits(None, raw) == raw


def test_a_scale_that_changes_is_taken(tmp_path: Path) -> None:
    """And the edit of a user stands."""
    store = CatalogStore(tmp_path, pipeline({}))
    for scale in (2, 4):
        now, _ = with_digits(database("tap"), catalog({"a": f"numeric(10,{scale})"}))
        made = store.merged(now).catalog
    assert made["streams"][0]["schema"]["properties"]["a"]["multipleOf"] == Decimal("0.0001")
