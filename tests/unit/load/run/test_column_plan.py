"""What the settings make of a stream's columns: which, under which names, and the SDK's metadata beside them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import DataError, SettingsError
from bridge.lake.log import Snapshot
from bridge.load.run.streams import Streams
from bridge.load.run.tables.column_plan import ColumnPlan, IncomingSchema, snake_case
from bridge.load.spool.folder import SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.metadata_columns import METADATA
from bridge.load.write.task import write_bundle
from bridge.protocol.schema.json_schema import source
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.messages import Schema
from bridge.settings.options import Pipeline

TEXT = {"type": ["null", "string"]}
NUMBER = {"type": ["null", "integer"]}
AT = 1_700_000_000_123


def said(properties: dict[str, Any], *, keys: tuple[str, ...] = (), bookmarks: tuple[str, ...] = ()) -> Schema:
    return Schema("users", {"type": "object", "properties": properties}, list(keys), list(bookmarks))


def incoming(shaping: ColumnPlan, message: Schema) -> IncomingSchema:
    keys = message.key_properties or []
    return shaping.incoming(message, keys, keys)


def names(schema: TableSchema) -> dict[str, str]:
    """The columns of a table, with the properties that they come from."""
    return {field.name: source(field) for field in schema.arrow}


def rows(
    folder: Path, schema: TableSchema, records: list[Any], *, metadata: bool = False, **around: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Write records as an executor does, and return its report and what is in the file."""
    spool = SpoolFolder(folder / "spool")
    spool.create()
    (folder / "lake").mkdir(exist_ok=True)
    lines = [{"type": "RECORD", "stream": "users", "record": record, **around} for record in records]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    spool.put_schema(schema.hash, schema.to_json())
    segment = spool.put_segment("users", schema.hash, data, at=AT)
    job = WriteContext(
        str(folder / "lake"),
        "p",
        "run",
        1,
        str(spool.path),
        "zstd",
        {"users": TableLayout("p/users", metadata=metadata)},
    )
    report = write_bundle(job, 1, [segment])
    assert report.failed is None, report
    found = [pq.read_table(folder / "lake" / file.source).to_pylist() for file in report.files]
    return report, [row for part in found for row in part]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("userID", "user_id"),
        ("HTTPServerName", "http_server_name"),
        ("User Id", "user_id"),
        ("a-b.c", "a_b_c"),
        ("already_snake", "already_snake"),
        ("_sdc_x", "_sdc_x"),
        ("Ärger2Go", "ärger2_go"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    """Words are told by their capitals, by spaces, dots and hyphens."""
    assert snake_case(name) == expected


def test_names_are_given_by_hand_first_then_by_the_style() -> None:
    """A name that is taken gets a number, as that of a twin; nothing of the tap's is lost from the schema."""
    shaping = ColumnPlan("users", rename={"custNo": "customer_id"}, style="snake_case")
    message = said({"customer_id": TEXT, "custNo": TEXT, "userName": TEXT, "user_name": TEXT})
    assert names(incoming(shaping, message).columns) == {
        "customer_id_2": "customer_id",
        "customer_id": "custNo",
        "user_name": "userName",
        "user_name_2": "user_name",
    }


def test_a_key_that_the_schema_does_not_declare_is_text() -> None:
    """tap-mongodb names `_id` and says no type of it. A SCHEMA that allows no other properties is refused."""
    columns = incoming(ColumnPlan("users"), Schema("users", {"type": "object"}, ["_id"], [])).columns.arrow
    assert (columns.names, columns.field("_id").type) == (["_id"], pa.string())
    strict = Schema("users", {"properties": {"name": TEXT}, "additionalProperties": False}, ["_id"], [])
    with pytest.raises(DataError, match="key property is not in the schema"):
        incoming(ColumnPlan("users"), strict)


def test_a_mark_of_deletion_that_may_be_anything_is_a_time() -> None:
    """tap-mongodb declares all of its times as a time or anything."""
    either = {"anyOf": [{"type": "string", "format": "date-time"}, {}]}
    message = said({"name": TEXT, "at": either, "_sdc_deleted_at": either})
    columns = incoming(ColumnPlan("users", log_based=True), message).columns.arrow
    assert columns.field("_sdc_deleted_at").type == pa.timestamp("us", "UTC")
    assert columns.field("at").type == pa.string()


@pytest.mark.parametrize("log_based", [False, True])
def test_a_log_may_have_deletions_that_no_schema_announces(log_based: bool) -> None:
    """Streams that are read from a log have the column of deletions, whether their SCHEMA says it or not."""
    shaping = ColumnPlan("users", log_based=log_based)
    columns = incoming(shaping, said({"name": TEXT})).columns.arrow
    assert columns.names == ["name", *(["_sdc_deleted_at"] if log_based else [])]
    assert not log_based or columns.field("_sdc_deleted_at").type == pa.timestamp("us", "UTC")
    declared = incoming(shaping, said({"_sdc_deleted_at": TEXT})).columns.arrow
    assert declared.field("_sdc_deleted_at").type == pa.string()


def test_a_column_that_the_table_has_keeps_its_name() -> None:
    """Names are for new columns: no file is written anew, and no column is there twice."""
    old = incoming(ColumnPlan("users"), said({"custNo": TEXT})).columns
    shaping = ColumnPlan("users", rename={"custNo": "customer_id", "zip": "postcode"}, style="lower")
    found = incoming(shaping, said({"custNo": TEXT, "zip": TEXT, "TOWN": TEXT})).into(old, Evolution())
    assert names(found) == {"custNo": "custNo", "postcode": "zip", "town": "TOWN"}
    again = incoming(ColumnPlan("users"), said({"zip": TEXT})).into(found, Evolution())
    assert names(again) == names(found)


def test_renamed_columns_are_read_from_the_taps_names(tmp_path: Path) -> None:
    """The records have the old names."""
    schema = incoming(ColumnPlan("users", rename={"a": "b", "b": "a"}), said({"a": NUMBER, "b": TEXT})).into(
        None, Evolution()
    )
    assert rows(tmp_path, schema, [{"a": 1, "b": "x"}])[1] == [{"b": 1, "a": "x"}]


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        (["*", "!secret_*"], ["id", "name", "at"]),
        (["!secret_*"], ["id", "name", "at"]),
        (["name"], ["id", "name", "at"]),
        (["*", "!secret_*", "secret_a"], ["id", "name", "secret_a", "at"]),
        (["!*", "id", "at"], ["id", "at"]),
    ],
)
def test_columns_by_globs(tmp_path: Path, columns: list[str], kept: list[str]) -> None:
    """The last match wins, naming some leaves out the others, and what is left out is no reject and no extra."""
    properties = {"id": {"type": "integer"}, "name": TEXT, "secret_a": NUMBER, "secret_b": {}, "at": TEXT}
    message = said(properties, keys=("id",), bookmarks=("at",))
    schema = incoming(ColumnPlan("users", columns), message).into(None, Evolution())
    record = {"id": 1, "name": "n", "secret_a": "no number", "secret_b": [1], "at": "t"}
    report, found = rows(tmp_path, schema, [record])
    if "secret_a" in kept:
        assert report.counts[0].rejects == 1
    else:
        assert found == [{name: record[name] for name in kept}]


@pytest.mark.parametrize(("columns", "column"), [(["*", "!i*"], "id"), (["!at"], "at"), (["!*"], "id"), (["!n"], "n")])
def test_keys_cannot_be_left_out(columns: list[str], column: str) -> None:
    """Neither those of the table nor that of the bookmark: said before anything is stored."""
    properties = {"id": {"type": "integer"}, "n": TEXT, "at": TEXT}
    shaping = ColumnPlan("users", columns, replication_key="n")
    with pytest.raises(SettingsError, match="columns leaves out a key") as caught:
        incoming(shaping, said(properties, keys=("id",), bookmarks=("at",)))
    assert column in caught.value.message


def test_what_matches_nothing_is_told() -> None:
    """A wrong name in the settings would go unnoticed else."""
    notes = incoming(ColumnPlan("users", ["!nmae"], {"x": "y"}), said({"name": TEXT})).notes
    assert notes == (
        "users: no column is like !nmae in its setting columns",
        "users: there is no column x to rename",
    )


def test_metadata_columns_are_those_of_the_sdk(tmp_path: Path) -> None:
    """Of a row: when the tap took it and which version it is of; of all that came together: when that was."""
    schema = incoming(ColumnPlan("users", metadata=True), said({"id": NUMBER})).into(None, Evolution())
    assert {field.name: field.type for field in schema.arrow if field.name != "id"} == METADATA
    _, found = rows(
        tmp_path, schema, [{"id": 1}], metadata=True, time_extracted="2024-02-03T04:05:06.7+02:00", version=7
    )
    at = datetime.fromtimestamp(AT // 1000, timezone.utc).replace(microsecond=123000)
    assert found == [
        {
            "id": 1,
            "_sdc_extracted_at": datetime(2024, 2, 3, 2, 5, 6, 700000, timezone.utc),
            "_sdc_received_at": at,
            "_sdc_batched_at": at,
            "_sdc_deleted_at": None,
            "_sdc_sequence": AT,
            "_sdc_table_version": 7,
        }
    ]
    _, found = rows(tmp_path, schema, [{"id": 1}], metadata=True)
    assert found[0]["_sdc_extracted_at"] == at


def test_what_the_tap_says_of_deletion_is_kept_and_all_else_of_these_names_is_not(tmp_path: Path) -> None:
    """In the SCHEMA or only in the record, whatever type either has: as the SDK's targets do."""
    message = said({"id": NUMBER, "_sdc_batched_at": NUMBER, "_sdc_deleted_at": TEXT})
    schema = incoming(ColumnPlan("users", metadata=True), message).into(None, Evolution())
    record = {"id": 1, "_sdc_batched_at": "x", "_sdc_sequence": {"a": 1}, "_sdc_deleted_at": "2024-01-01T00:00:00Z"}
    report, found = rows(tmp_path, schema, [record, {"id": 2, "other": 3}], metadata=True)
    assert report.counts[0].rejects == 0
    assert [row["_sdc_deleted_at"] for row in found] == [datetime(2024, 1, 1, tzinfo=timezone.utc), None]
    assert [row["_sdc_sequence"] for row in found] == [AT, AT]
    assert [row.get("_sdc_extra") for row in found] == [None, '{"other":3}']
    plain = incoming(ColumnPlan("users"), said({"id": NUMBER, "_sdc_batched_at": TEXT})).into(None, Evolution())
    assert rows(tmp_path, plain, [{"id": 1, "_sdc_batched_at": "x"}])[1] == [{"id": 1, "_sdc_batched_at": "x"}]


def test_metadata_switched_on_and_off_later(tmp_path: Path) -> None:
    """Columns come when it is switched on, whatever the policy is, and stay when it is off, with nulls."""
    message = said({"id": NUMBER})
    old = incoming(ColumnPlan("users"), message).columns
    on = incoming(ColumnPlan("users", metadata=True), message).into(old, Evolution(schema_policy="freeze"))
    assert list(names(on)) == ["id", *METADATA]
    assert rows(tmp_path, on, [{"id": 1}], metadata=True)[1][0]["_sdc_sequence"] == AT
    off = incoming(ColumnPlan("users"), message).into(on, Evolution())
    assert list(names(off)) == ["id", *METADATA]
    assert rows(tmp_path, off, [{"id": 1}])[1] == [{"id": 1} | dict.fromkeys(METADATA)]


def test_a_statement_over_a_column_of_two_types_is_refused(tmp_path: Path) -> None:
    """It would see the values of one type only, and those of the other were gone."""
    keys = {"transform": "SELECT * FROM stream", "on_type_change": "variant"}
    given = {"source": {"tap": "x"}, "destination": {"bucket": str(tmp_path)}, "streams": {"u*": keys}, "name": "p"}
    streams = Streams(Pipeline.model_validate(given), None, Snapshot())
    assert streams.columns(streams["orders"]).statement is None
    with pytest.raises(SettingsError, match="do not go together stream=users"):
        streams.columns(streams["users"])
