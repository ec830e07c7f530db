"""Columns that a tap cannot extract: said of each new table, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.load.run.checks.not_extracted import left_documents, not_extracted, nothing_sent, without_rows

_CATALOG: Any = {
    "streams": [
        {
            "tap_stream_id": "public-kinds",
            "stream": "kinds",
            "schema": {"properties": {"id": {"type": "integer"}, "raw": {}, "bits": {"type": ["null", "string"]}}},
            "metadata": [
                {"breadcrumb": ["properties", "raw"], "metadata": {"inclusion": "unsupported"}},
                {"breadcrumb": ["properties", "bits"], "metadata": {"inclusion": "unsupported"}},
                {"breadcrumb": ["properties", "id"], "metadata": {"inclusion": "automatic"}},
            ],
        },
        {"tap_stream_id": "plain", "schema": {"properties": {"id": {"type": "integer"}}}, "metadata": []},
    ]
}


def test_columns_of_unknown_types_are_named() -> None:
    """By the name of the table, both columns, and a way to load them."""
    [difference] = not_extracted(_CATALOG, {"kinds", "plain"})
    assert (difference.stream, difference.kind) == ("kinds", "unsupported_column")
    assert "cannot extract raw, bits" in difference.text
    assert "make a view" in difference.text


def test_it_is_said_once() -> None:
    """A table that the lake has is not named again; a tap without a catalog says nothing of columns."""
    assert list(not_extracted(_CATALOG, {"plain"})) == []
    assert list(not_extracted(None, {"kinds"})) == []


@pytest.mark.parametrize(
    ("schema", "method", "is_said"),
    [
        ({"multipleOf": 1e-10, "maximum": 10**28, "exclusiveMaximum": True}, "LOG_BASED", True),
        ({"multipleOf": 1e-10, "maximum": 10**28, "exclusiveMaximum": True}, "INCREMENTAL", False),
        ({"multipleOf": 0.01, "maximum": 10**8, "exclusiveMaximum": True}, "LOG_BASED", False),
        ({"precision": 30, "scale": 0}, "LOG_BASED", True),
        ({}, "LOG_BASED", True),
    ],
)
def test_numbers_that_a_log_rounds(schema: dict[str, Any], method: str, is_said: bool) -> None:
    """PostgreSQL's `numeric` with more digits than a double holds, where it is read from the log."""
    metadata: list[Any] = [
        {"breadcrumb": [], "metadata": {"replication-method": method}},
        {"breadcrumb": ["properties", "n"], "metadata": {"sql-datatype": "numeric", "inclusion": "available"}},
    ]
    entry = {
        "tap_stream_id": "t",
        "schema": {"properties": {"n": {"type": ["null", "number"], **schema}}},
        "metadata": metadata,
    }
    differences = list(not_extracted({"streams": [entry]}, {"t"}))
    assert [each.kind for each in differences] == (["log_digits"] if is_said else [])


@pytest.mark.parametrize("method", ["LOG_BASED", "FULL_TABLE"])
def test_floats_that_a_binlog_rounds(method: str) -> None:
    """MySQL's `float`, whatever it says behind that word; its `double` is one."""
    kinds = {"f": "float", "g": "float(7,3) unsigned", "d": "double"}
    columns = [
        {"breadcrumb": ["properties", name], "metadata": {"sql-datatype": kind, "inclusion": "available"}}
        for name, kind in kinds.items()
    ]
    entry: Any = {
        "tap_stream_id": "t",
        "schema": {"properties": {name: {"type": ["null", "number"]} for name in kinds}},
        "metadata": [{"breadcrumb": [], "metadata": {"replication-method": method}}, *columns],
    }
    texts = [each.text for each in not_extracted({"streams": [entry]}, {"t"})]
    assert len(texts) == (method == "LOG_BASED")
    assert all("so f, g may have other digits after the seventh" in text for text in texts)


@pytest.mark.parametrize(("method", "rows", "is_said"), [(None, 5, True), (None, 0, False), ("FULL_TABLE", 5, False)])
def test_a_stream_of_which_nothing_came(method: str | None, rows: int, is_said: bool) -> None:
    """tap-dynamodb counts the rows, extracts none without a replication method, and ends well."""
    facts = {"row-count": rows} | ({"replication-method": method} if method else {})
    entry = {"tap_stream_id": "t", "schema": {}, "metadata": [{"breadcrumb": [], "metadata": facts}]}
    said = list(without_rows({"streams": [entry]}, {"t", "other"}))
    assert [(one.stream, one.kind, one.rows) for one in said] == ([("t", "no_rows", 5)] if is_said else [])
    assert not said or "streams: {t: {replication_method: FULL_TABLE}}" in said[0].text


def test_a_tap_that_did_not_read_its_catalog() -> None:
    """It ends well without a message: each selected stream is named, with the flag to write."""
    [said] = nothing_sent(
        {
            "streams": [
                {"tap_stream_id": "t", "schema": {}, "metadata": [{"breadcrumb": [], "metadata": {"selected": True}}]},
                {"tap_stream_id": "u", "schema": {}, "metadata": []},
            ]
        },
        ["tap-x", "-v"],
    )
    assert (said.stream, said.kind) == ("t", "nothing_sent")
    assert said.text.endswith("Try source.tap: tap-x -v --properties")


@pytest.mark.parametrize(
    ("method", "records", "left"), [("FULL_TABLE", 89, [11]), ("FULL_TABLE", 90, []), ("INCREMENTAL", 9, [])]
)
def test_documents_that_a_full_table_leaves_out(method: str, records: int, left: list[int]) -> None:
    """MongoDB's tap counts a collection; far fewer documents in its first load are a difference, with what to type."""
    facts = {"table-key-properties": ["_id"], "row-count": 100, "replication-method": method}
    entry = {"tap_stream_id": "shop-users", "stream": "users", "schema": {"type": "object"}}
    catalog: Any = {"streams": [entry | {"metadata": [{"breadcrumb": [], "metadata": facts}]}]}
    differences = list(left_documents("p", catalog, {"users": records}))
    assert [one.rows for one in differences] == left
    assert all("`singer-bridge run p --full -s users` loads all" in one.text for one in differences)
