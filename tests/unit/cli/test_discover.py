"""`discover`: the streams, what is different from the last time, and what a run would make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Typed

TWO = [{"name": "orders", "records": 10}, {"name": "rates", "records": 5, "replication_method": "FULL_TABLE"}]


def project(folder: Path, streams: list[dict[str, Any]] | None = None, **more: Any) -> None:
    """Write a project whose tap has these streams."""
    source = {"tap": "tap-smoke", "config": {"streams": streams or TWO}} | more.pop("source", {})
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": more.pop("overrides", {})}
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": pipeline}}))


def lines(text: str) -> list[str]:
    """Return the lines, runs of blanks as one."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_streams_and_where_they_are_kept(folder: Path, typed: Typed) -> None:
    """A first discovery has nothing to compare: it prints what a run would load, and the file."""
    project(folder)
    done = typed("discover shop")
    assert done.code == 0
    assert lines(done.out) == [
        "stream selected replication method each run",
        "orders yes INCREMENTAL adds rows after its id",
        "rates yes FULL_TABLE replaces the table",
        f"kept in {folder}/.singer-bridge/catalogs/shop.json",
    ]


def test_the_table_is_what_a_run_would_load(folder: Path, typed: Typed) -> None:
    """Choices and overrides of the settings are in it; what means nothing is a warning."""
    project(
        folder,
        source={"select": ["orders", "ratse"]},
        overrides={"orders": {"replication_method": "FULL_TABLE"}},
    )
    done = typed("discover")
    assert done.code == 0
    assert lines(done.out)[1:3] == ["orders yes FULL_TABLE replaces the table", "rates FULL_TABLE replaces the table"]
    assert 'warning: select: ratse matches nothing. did you mean "rates"?' in done.out


def test_settings_of_no_stream_are_said(folder: Path, typed: Typed) -> None:
    """Settings of a stream that the tap does not have end a run: `discover` says so."""
    project(folder, overrides={"ordres": {"load_method": "upsert"}})
    done = typed("discover")
    assert done.code == 0
    assert "a run would end with: settings for a stream that the tap does not have" in done.out
    assert 'did you mean "orders"?' in done.out


def test_a_wrong_setting_does_not_hide_the_catalog(folder: Path, typed: Typed) -> None:
    """The catalog is kept and shown, and what a run would end with is said."""
    project(folder, overrides={"orders": {"replication_key": "idd"}})
    done = typed("discover")
    assert done.code == 0
    assert "orders yes INCREMENTAL adds rows after its id" in lines(done.out)
    assert "warning: a run would end with: the tap cannot replicate by this key stream=orders key=idd." in done.out
    assert (folder / ".singer-bridge/catalogs/shop.json").exists()


def test_changes_are_told(folder: Path, typed: Typed) -> None:
    """New, gone and changed streams stand below the table, and whether what is new is loaded."""
    project(folder, source={"select": ["orders", "rates"]})
    assert typed("discover").code == 0
    project(folder, [TWO[0] | {"types": True}, {"name": "items", "records": 1}], source={"select": ["orders", "rates"]})
    done = typed("discover")
    assert done.code == 0
    assert "changed: new stream: items, not selected" in done.out
    assert "changed: gone stream: rates" in done.out
    assert "changed: orders: new column" in done.out
    assert "changed" not in typed("discover").out


def test_edits_stay(folder: Path, typed: Typed) -> None:
    """A stream deselected by hand in the kept catalog stays so; where the tap changed the same, that is said."""
    project(folder)
    assert typed("discover").code == 0
    kept = folder / ".singer-bridge/catalogs/shop.json"
    catalog = json.loads(kept.read_text())
    catalog["streams"][1]["metadata"][0]["metadata"]["selected"] = False
    catalog["streams"][0]["metadata"][0]["metadata"]["replication-method"] = "LOG_BASED"
    kept.write_text(json.dumps(catalog))
    project(folder, [TWO[0] | {"replication_method": "FULL_TABLE"}, TWO[1]])
    done = typed("discover")
    assert "orders yes LOG_BASED changes, merged by id" in lines(done.out)
    assert "rates FULL_TABLE replaces the table" in lines(done.out)
    assert "changed: orders.replication-method: your edit stands, though the tap changed it too" in done.out
    assert "changed: orders: replication method was INCREMENTAL, is FULL_TABLE" in done.out


def test_diff_only_looks(folder: Path, typed: Typed) -> None:
    """`--diff` prints what a discovery would change and keeps nothing; as JSON it is one document."""
    project(folder)
    assert "nothing was discovered before" in typed("discover --diff").out
    assert not (folder / ".singer-bridge/catalogs").exists()
    assert typed("discover").code == 0
    assert typed("discover --diff").out == "nothing changed\n"
    project(folder, [TWO[0]])
    assert typed("discover --diff").out == "changed: gone stream: rates\n"
    said = json.loads(typed("discover --diff --json").out)
    assert said == {
        "format": 1,
        "pipeline": "shop",
        "first": False,
        "new": [],
        "gone": ["rates"],
        "changed": {},
        "overruled": [],
    }
    assert typed("discover --diff").out == "changed: gone stream: rates\n"


def test_json_is_the_catalog(folder: Path, typed: Typed) -> None:
    """What `--json` prints is what is kept, to be used as source.catalog."""
    project(folder)
    done = typed("discover --json")
    assert json.loads(done.out) == json.loads((folder / ".singer-bridge/catalogs/shop.json").read_text())


def test_without_a_file(folder: Path, typed: Typed) -> None:
    """A tap on the command line is asked, too, and its catalog kept for runs by that name."""
    (folder / "tap.json").write_text(json.dumps({"streams": TWO}))
    done = typed("discover --tap tap-smoke --tap-config tap.json --to lake --name x")
    assert done.code == 0
    assert (folder / ".singer-bridge/catalogs/x.json").exists()


@pytest.mark.parametrize(
    ("tap", "code", "text"),
    [
        ('echo \'{"type":"SCHEMA"}\' #', 1, "no --discover"),
        ("echo no database called flights >&2; exit 3 #", 1, "no database called flights"),
        ("exit 0 #", 1, "printed nothing"),
    ],
)
def test_a_tap_that_cannot(folder: Path, typed: Typed, tap: str, code: int, text: str) -> None:
    """A tap that runs instead, fails, or says nothing ends with 1 and, on stderr, what it said."""
    project(folder, source={"tap": ["sh", "-c", tap]})
    done = typed("discover")
    assert done.code == code
    assert text in done.err
    assert done.out == ""


def test_tables_of_the_database_itself_are_counted(folder: Path, typed: Typed) -> None:
    """System schemas hide nothing: they are a number below the streams, until one is selected; programs get all."""
    tap_with(folder, ["information_schema-views", "pg_catalog-pg_class", "public-users", "public-log"])
    done = typed("discover shop")
    assert [line.split()[0] for line in done.out.splitlines()[:4]] == ["stream", "public-users", "public-log", "not"]
    assert "2 streams of the database's own schemas; --json has all" in done.out
    assert len(typed("discover shop --json").json["streams"]) == 4
    typed("select shop pg_catalog-pg_class public-users")
    assert "pg_catalog-pg_class" in typed("discover shop").out


def test_proposals_can_be_pasted(folder: Path, typed: Typed) -> None:
    """Where no method is known its lines are right as they stand, and then nothing is proposed any more."""
    tap_with(folder, ["public-users", "public-log"], select="public-*")
    done = typed("discover shop")
    assert "2 streams without a replication method" in done.out
    start = done.out.index("    streams:")
    pasted = done.out[start : done.out.index("kept in")]
    assert "## updated_at tells which rows are new or changed" in pasted
    file = folder / "bridge.yaml"
    file.write_text(file.read_text() + pasted)
    assert typed("config check").code == 0
    again = typed("discover shop")
    assert "no replication method" not in again.out
    assert lines(again.out)[1:3] == [
        "public-users yes INCREMENTAL changes, merged by id",
        "public-log yes FULL_TABLE replaces the table",
    ]


def tap_with(folder: Path, streams: list[str], select: str = "") -> None:
    """Write a project whose tap discovers these streams, `users` with a key and a time, and knows no method."""
    column = {"type": "string", "format": "date-time"}
    catalog = [
        {
            "tap_stream_id": name,
            "stream": name,
            "schema": {
                "properties": {"id": {"type": "integer"}, **({"updated_at": column} if "users" in name else {})}
            },
            "metadata": [
                {
                    "breadcrumb": [],
                    "metadata": {
                        "inclusion": "available",
                        "schema-name": name.split("-")[0],
                        "table-key-properties": ["id"] if "users" in name else [],
                    },
                }
            ],
        }
        for name in streams
    ]
    (folder / "catalog.json").write_text(json.dumps({"streams": catalog}))
    (folder / "tap-x").write_text(f"#!/bin/sh\ncat {folder}/catalog.json\n")
    (folder / "tap-x").chmod(0o755)
    chosen = f'      select: ["{select}"]\n' if select else ""
    (folder / "bridge.yaml").write_text(
        f"pipelines:\n  shop:\n    source:\n      tap: {folder}/tap-x\n{chosen}    destination: {{bucket: lake}}\n"
    )
