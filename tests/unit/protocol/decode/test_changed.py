"""Values that a column cannot give back are counted, alike on every path; others are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.decode import exact, native
from bridge.protocol.decode.changed import CHANGED_VALUES, DELETION_TIME, LOST_DIGITS, Changed, loses_digits
from bridge.protocol.decode.decoder import decode
from bridge.protocol.decode.exact import RecordLayout
from bridge.protocol.schema.table_schema import from_singer

NUMBER, TIME = {"type": "number"}, {"type": "string", "format": "date-time"}
PREFIX = b'{"type":"RECORD","stream":"t","record":'
"""What a dispatcher knows of each line."""


@contextmanager
def without_native() -> Iterator[None]:
    """The exact path does the work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        yield


def lines(*texts: str) -> bytes:
    return b"".join(PREFIX + text.encode() + b"}\n" for text in texts)


def on_all_paths(properties: dict[str, Any], *texts: str) -> Changed:
    """The counts, which are the same by the compiled reader and by the exact path."""
    schema, data = from_singer({"properties": properties}, []), lines(*texts)
    counted = exact.read(data, RecordLayout(schema.fields, PREFIX)).changed
    assert decode(data, schema, PREFIX).changed == counted
    return counted


LOST = ["9007199254740993", "0.10000000000000001", "-1234567890123456789.5", "1e-400", '"0.1234567890123456789"']
KEPT = ["9007199254740992", "0.1", "-1.50", "0.30000000000000004", "1.00000000000000000000", "5e-324", "1e22", "null"]
KEPT += [
    '"1.5"',
    "1234567890123456768",
    "1234567890123456800",
    "-0.0",
    "NaN",
    '"-Infinity"',
    "0.1e-2",
    "18014398509481984.0",
]


@pytest.mark.parametrize("text", LOST)
def test_digits_that_a_double_loses(text: str) -> None:
    """Counted once a value, under the column's name."""
    assert on_all_paths({"a": NUMBER}, f'{{"a":{text}}}', '{"a":0.5}', f'{{"a":{text}}}') == {(LOST_DIGITS, "a"): 2}


@pytest.mark.parametrize("text", KEPT)
def test_digits_that_a_double_has(text: str) -> None:
    """As it is printed, or, of a whole number, as it is."""
    assert not on_all_paths({"a": NUMBER}, f'{{"a":{text}}}')


ODD_MARKS = [
    "1764187200000",
    "17641872.5",
    '"2026-11-26T20:00:00+00:00+00:00"',
    "true",
    '"2026-11-26T20:00:00Z "',
    '"yes"',
]
NO_MARKS = ["null", "false", '""', '" "']


@pytest.mark.parametrize("mark", [*ODD_MARKS, *NO_MARKS])
def test_a_mark_of_deletion_that_is_no_time(mark: str) -> None:
    """Whatever a tap writes there deletes the row, at the time when it came, and is counted; it is no reject.

    Null, false and an empty text mark nothing.
    """
    properties = {"id": {"type": "integer"}, "_sdc_deleted_at": TIME}
    record = f'{{"id":1,"_sdc_deleted_at":{mark}}}'
    others = ['{"id":2}', '{"id":3,"_sdc_deleted_at":"2026-11-26T20:00:00Z"}']
    others += ['{"id":4,"_sdc_deleted_at":"2026-11-26 20:53:28 +00:53:28"}']
    changed = on_all_paths(properties, record, *others)
    assert changed == ({(DELETION_TIME, "_sdc_deleted_at"): 1} if mark in ODD_MARKS else {})
    schema, before = from_singer({"properties": properties}, ["id"]), datetime.now(timezone.utc)
    batch = decode(lines(record, *others), schema, PREFIX)
    assert not batch.rejects
    deleted = [row["_sdc_deleted_at"] for row in batch.table.to_pylist()]
    assert deleted[1:] == [None, *[datetime(2026, 11, 26, 20, tzinfo=timezone.utc)] * 2]
    assert before <= deleted[0] <= datetime.now(timezone.utc) if mark in ODD_MARKS else deleted[0] is None


@pytest.mark.parametrize(
    ("text", "scale", "stored"),
    [
        ("12.339999999999999857891452847979962825775146484375", 2, "12.34"),
        ("-0.1000000000000000055511151231257827021181583404541015625", 10, "-0.1"),
        ('"12.339999999999999857891452847979962825775146484375"', 2, "12.34"),
        ("12.5", 2, "12.5"),
        ("12.339999999999999857891452847979962825775146484376", 2, None),
        ("12.345", 2, None),
        ("12.3450000000000006394884621840901672840118408203125", 2, None),
        ("0.00000000000000000086736173798840354720596224069595336914062", 19, None),
    ],
)
def test_a_double_with_all_of_its_digits_is_the_number_that_it_is_printed_as(
    text: str, scale: int, stored: Any
) -> None:
    """A decimal that does not hold the digits gets that number, if it has so many; any other one is a reject."""
    properties = {"n": {"type": ["null", "number"], "multipleOf": 10**-scale}}
    schema, data = from_singer({"properties": properties}, []), lines(f'{{"n":{text}}}')
    for batch in (decode(data, schema, PREFIX), _without(data, schema)):
        rows = [row["n"] for row in batch.table.to_pylist()]
        assert rows == ([] if stored is None else [Decimal(stored)])
        assert len(batch.rejects) == (stored is None)


def _without(data: bytes, schema: Any) -> Any:
    with without_native():
        return decode(data, schema, PREFIX)


def test_a_time_elsewhere_that_is_none() -> None:
    """It stays a reject: only a deletion is readable without its time."""
    schema = from_singer(
        {"properties": {"at": TIME, "o": {"type": "object", "properties": {"_sdc_deleted_at": TIME}}}}, []
    )
    data = lines('{"at":true}', '{"o":{"_sdc_deleted_at":true}}')
    assert [reject.pointer for reject in decode(data, schema, PREFIX).rejects] == ["/at", "/o/_sdc_deleted_at"]


def test_other_columns_are_not_counted() -> None:
    """A decimal, an integer and JSON keep every digit, and a text is no number."""
    properties = {
        "d": {"type": "number", "multipleOf": 1e-19},
        "i": {"type": "integer"},
        "j": {},
        "s": {"type": "string"},
    }
    texts = '{"d":0.1234567890123456789,"i":9007199254740993,"j":0.1234567890123456789,"s":"0.1234567890123456789"}'
    assert not on_all_paths(properties, texts)


def test_values_inside_of_others() -> None:
    """Each by its dotted name."""
    properties = {
        "o": {"type": "object", "properties": {"a": NUMBER, "t": TIME}},
        "l": {"type": "array", "items": NUMBER},
        "d": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "array", "items": NUMBER}}}},
    }
    inner = '{"a":0.10000000000000001,"t":"2024-01-01T00:00:00.1234567Z"}'
    deeper = '[{"a":[1,0.10000000000000001]},{"a":null}]'
    text = f'{{"o":{inner},"l":[0.10000000000000001,1,9007199254740993],"d":{deeper}}}'
    found = on_all_paths(properties, text, '{"o":null,"l":null}', '{"l":[]}')
    numbers = {(LOST_DIGITS, "o.a"): 1, (LOST_DIGITS, "l[]"): 2, (LOST_DIGITS, "d[].a[]"): 1}
    assert found == numbers | {(CHANGED_VALUES, "o.t"): 1}


def test_instants_that_are_cut_or_moved() -> None:
    """Digits beyond microseconds that are not 0, and what is not finite."""
    texts = [f'{{"t":"2024-01-01T00:00:00.{f}Z"}}' for f in ("123456", "123456000", "123456001", "1234567")]
    found = on_all_paths({"t": TIME}, *texts, '{"t":"infinity"}', '{"t":"9999-12-31T23:59:59.999999Z"}')
    assert found == {(CHANGED_VALUES, "t"): 3}
    assert on_all_paths({"d": TIME | {"format": "date"}}, '{"d":"-infinity"}') == {(CHANGED_VALUES, "d"): 1}


def test_a_reject_is_not_counted() -> None:
    """Its line is kept as it came."""
    properties = {"a": NUMBER, "i": {"type": "integer"}}
    assert not on_all_paths(properties, '{"a":0.10000000000000001,"i":"x"}')


def test_json_null_in_postgresqls_log() -> None:
    """It is no value in the lake, as a query of the same row gives it."""
    schema = from_singer({"properties": {"j": {}, "_sdc_lsn": {"type": "integer"}}}, [])
    decoded = decode(lines('{"j":"null","_sdc_lsn":5}', '{"j":"1","_sdc_lsn":6}'), schema, PREFIX)
    assert (decoded.table.column("j").to_pylist(), decoded.changed) == ([None, "1"], {(CHANGED_VALUES, "j"): 1})


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False) | st.integers() | st.floats(allow_nan=False), max_size=4
    )
)
def test_any_numbers(values: list[Any]) -> None:
    """The count is what `loses_digits` says of each value that became a row."""
    texts = [str(value) for value in values if abs(value) < 1e300]
    data = lines(*(f'{{"a":{text.replace("E+", "e+")}}}' for text in texts))
    schema = from_singer({"properties": {"a": NUMBER}}, [])
    expected = sum(loses_digits(Decimal(text)) for text in texts)
    assert decode(data, schema, PREFIX).changed[LOST_DIGITS, "a"] == expected
    with without_native():
        assert decode(data, schema, PREFIX).changed[LOST_DIGITS, "a"] == expected


def test_beside_a_property_of_any_type() -> None:
    """An object with an untyped property is read as it is written; its other values are counted all the same."""
    inside = {"any": {}, "at": TIME, "many": {"type": "array", "items": NUMBER}}
    properties = {"a": {"type": ["null", "object"], "properties": inside}}
    counted = on_all_paths(
        properties,
        '{"a":{"any":[1],"at":"2024-01-01T00:00:00.1234567Z","many":[1.5,9007199254740993]}}',
        '{"a":{"any":9007199254740993,"at":"2024-01-01T00:00:00Z","many":[]}}',
        '{"a":null}',
    )
    assert counted == {(CHANGED_VALUES, "a.at"): 1, (LOST_DIGITS, "a.many[]"): 1}
