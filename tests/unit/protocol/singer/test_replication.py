"""How a stream could be replicated, from its catalog entry alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.cli.setup.propose import lines_of
from bridge.protocol.singer.replication import propose
from bridge.settings.destination import StreamKeys
from bridge.settings.text.variables import Variables

TIME = {"type": ["string", "null"], "format": "date-time"}
NUMBER = {"type": ["integer"]}
TEXT = {"type": ["string", "null"]}


def entry(properties: dict[str, Any], keys: list[str], **facts: Any) -> dict[str, Any]:
    root = {"inclusion": "available", "table-key-properties": keys, **facts}
    return {
        "tap_stream_id": "public-orders",
        "stream": "orders",
        "schema": {"properties": properties},
        "metadata": [{"breadcrumb": [], "metadata": root}],
    }


@pytest.mark.parametrize(
    "name",
    ["updated_at", "last_modified", "lastModifiedDate", "modified", "write_date", "SystemModstamp", "changed_on"],
)
def test_a_time_of_change_and_a_key_are_incremental(name: str) -> None:
    """A time that each change moves is proposed, with upsert: the row comes again under its key."""
    proposal = propose(entry({"id": NUMBER, "created_at": TIME, name: TIME}, ["id"]))
    assert (proposal.method, proposal.replication_key, proposal.load_method) == ("INCREMENTAL", name, "upsert")
    assert [(one.column, one.kind) for one in proposal.candidates] == [
        (name, "updated"),
        ("created_at", "created"),
        ("id", "number"),
    ]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({"id": NUMBER, "note": TEXT}, ["id"]),
        ({"id": NUMBER, "created_at": TIME}, ["id"]),  # changes of a row would be missed
        ({"id": NUMBER, "update_count": NUMBER}, ["id"]),
        ({"what": TEXT, "at": TIME}, []),
        ({"updated_at": TIME}, []),  # rows could not be told apart when they come again
    ],
)
def test_else_the_whole_table(properties: dict[str, Any], keys: list[str]) -> None:
    """Nothing is proposed that would miss a change, or add a row twice."""
    proposal = propose(entry(properties, keys))
    assert (proposal.method, proposal.replication_key, proposal.load_method) == ("FULL_TABLE", None, "auto")


def test_what_the_catalog_says_is_kept() -> None:
    """A method and a key that somebody chose are not proposed away."""
    chosen = propose(entry({"id": NUMBER, "n": NUMBER}, ["id"], **{"replication-key": "n"}))
    assert (chosen.method, chosen.replication_key) == ("INCREMENTAL", "n")
    log = propose(entry({"id": NUMBER, "updated_at": TIME}, ["id"], **{"replication-method": "LOG_BASED"}))
    assert (log.declared, log.method, log.replication_key, log.load_method) == (
        "LOG_BASED",
        "LOG_BASED",
        None,
        "upsert",
    )
    empty = propose(entry({"id": NUMBER}, ["id"], **{"forced-replication-method": ""}))  # as meltanolabs' taps write it
    assert (empty.declared, empty.method) == (None, "FULL_TABLE")


def test_only_keys_that_the_tap_can_do() -> None:
    """Where the tap names valid replication keys, no other column is proposed."""
    properties = {"id": NUMBER, "updated_at": TIME, "seq": NUMBER}
    proposal = propose(entry(properties, ["id"], **{"valid-replication-keys": ["seq"]}))
    assert [one.column for one in proposal.candidates] == ["seq"]


def test_a_time_by_its_type_in_the_database() -> None:
    """A time whose schema says only text is known by `sql-datatype`."""
    stream = entry({"id": NUMBER, "updated_at": TEXT}, ["id"])
    stream["metadata"].append(
        {"breadcrumb": ["properties", "updated_at"], "metadata": {"sql-datatype": "timestamp without time zone"}}
    )
    assert propose(stream).replication_key == "updated_at"


def test_the_line_to_paste_is_yaml_of_ours() -> None:
    """The line is what bridge.yaml takes below `streams`."""
    proposal = propose(entry({"id": NUMBER, "updated at": TIME}, ["id"]))
    [(name, keys)] = yaml.safe_load(proposal.line()).items()
    assert name == "public-orders"
    assert StreamKeys(**keys).replication_key == "updated at"
    assert keys == proposal.settings()


def test_a_name_of_the_source_is_no_command() -> None:
    """A column that is called `${cmd:...}` or has a line break is a name in bridge.yaml, and nothing else."""
    name = "${cmd:touch owned}\nupdated_at"
    proposal = propose(entry({"id": NUMBER, name: TIME}, ["id"], **{"replication-key": name}))
    comment, line = lines_of([proposal])
    assert "\n" not in comment + line
    [keys] = yaml.safe_load(line).values()
    assert Variables({}).expand(keys["replication_key"], Path.cwd()) == (name, [])


def test_a_column_with_nulls_is_not_proposed() -> None:
    """An incremental run does not see such a row again: another column, or the whole table, and why."""
    stream = entry({"id": NUMBER, "updated_at": TIME, "modified_at": TIME, "created_at": TIME}, ["id"])
    assert propose(stream, {"updated_at"}).replication_key == "modified_at"
    whole = propose(stream, {"updated_at", "modified_at"})
    assert (whole.method, whole.replication_key, whole.load_method) == ("FULL_TABLE", None, "auto")
    assert "updated_at, modified_at: NULL in some rows" in whole.reason
    chosen = propose(entry({"id": NUMBER, "n": NUMBER}, ["id"], **{"replication-key": "n"}), {"n"})
    assert (chosen.method, chosen.replication_key) == ("INCREMENTAL", "n")
    assert "n is NULL in some rows" in chosen.reason
    declared = propose(
        entry({"id": NUMBER, "a_at": TIME, "b_at": TIME}, ["id"], **{"replication-method": "INCREMENTAL"}), {"a_at"}
    )
    assert declared.replication_key == "b_at"
    assert "NULL" not in declared.reason


def test_the_log_of_the_database_comes_first() -> None:
    """A table with a key is read from a log that tells its changes; why another is not, the reason says."""
    stream = entry({"id": NUMBER, "updated_at": TIME}, ["id"])
    logged = propose(stream, log="")
    assert (logged.method, logged.replication_key, logged.load_method, logged.has_log) == (
        "LOG_BASED",
        None,
        "upsert",
        True,
    )
    assert logged.settings() == {"replication_method": "LOG_BASED", "load_method": "upsert"}
    assert "each insert, update and delete, merged by id" in logged.reason
    view = propose(stream, log="a view")
    assert (view.method, view.has_log, view.reason.endswith("; the log has no changes of it: a view")) == (
        "INCREMENTAL",
        False,
        True,
    )
    assert (propose(stream).method, propose(stream).has_log) == ("INCREMENTAL", False)
    keyless = propose(entry({"line": NUMBER}, []), log="")
    assert (keyless.method, keyless.has_log) == ("FULL_TABLE", False)


def test_what_the_catalog_says_comes_before_the_log() -> None:
    """Its own method or key stays."""
    for facts, method in (
        ({"replication-method": "FULL_TABLE"}, "FULL_TABLE"),
        ({"replication-key": "n"}, "INCREMENTAL"),
    ):
        assert propose(entry({"id": NUMBER, "n": NUMBER}, ["id"], **facts), log="").method == method
