"""`tap-bridge`: the SDK's own suite, what is sent after each kind of commit, and the copy that a target makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge import Lake
from bridge.errors import CommitExpired, SettingsError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import open_storage
from bridge.protocol.schema.merging import Evolution
from tests.support.s3server import S3Server
from tests.support.tables import INTEGER, ODD, STRING, WIDE, Shop, filled
from tests.support.tap_bridge import (
    AT,
    USERS,
    activated,
    difference,
    discovered,
    last_state,
    load,
    messages,
    read,
    records,
    rows,
    sent,
    upsert,
)
from tests.support.view_tables import Views, counts

ID = {"type": "integer"}
SUITE = """
from singer_sdk.testing import SuiteConfig, get_tap_test_class
from tap_bridge import TapBridge

config = SuiteConfig(ignore_no_records_for_streams=["none"])
TestStandard = get_tap_test_class(TapBridge, config={{"bucket": {bucket!r}}}, suite_config=config)
"""


def root_of(catalog: Any) -> dict[str, Any]:
    """The metadata of a catalog's first stream."""
    (metadata,) = [one["metadata"] for one in catalog["streams"][0]["metadata"] if not one["breadcrumb"]]
    return metadata


def test_the_sdk_s_suite_passes(tmp_path: Path) -> None:
    """Of each stream of a lake with odd names, all types and an empty table, and of each attribute.

    Without a column of JSON: the suite takes one that may be a boolean for one that must be.
    """
    shop = Shop(tmp_path)
    wide = {name: column for name, column in WIDE.items() if name != "payload"}
    record = {"n": 1, "at": AT, "day": "2024-02-29", "place": {"x": 1, "y z": "q"}, "lines": [{"sku": "s"}]}
    shop.load("wide", wide, [record | {"price": 1.25, "open": True, "ratio": 0.5, "grid": [[1], [2, 3]]}])
    shop.load(ODD, {ODD: INTEGER, "ID": STRING, "id": STRING}, [{ODD: 1, "ID": "a", "id": "b"}])
    shop.load("none", {"id": INTEGER}, [])
    upsert(shop, rows(1, 2, 3))
    (tmp_path / "test_suite.py").write_text(SUITE.format(bucket=str(shop.root)))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_suite.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 30


def test_types_come_back_as_they_were(tmp_path: Path) -> None:
    """Decimals, large integers, times, dates, nested and JSON columns, odd names: the copy has the same columns."""
    filled(tmp_path / "source")
    load(tmp_path, read(tmp_path / "source"))
    for stream in ("orders", "Orders", "wide", ODD):
        assert difference(tmp_path / "source", tmp_path, stream) == [], stream


def test_values_that_json_must_escape(tmp_path: Path) -> None:
    """Quotes, backslashes, controls, other scripts, the largest and smallest numbers, null anywhere."""
    shop = Shop(tmp_path / "source")
    inner = {
        "type": ["null", "object"],
        "properties": {'q"': STRING, "d": {"type": ["null", "array"], "items": STRING}},
    }
    columns = {"s": STRING, "i": INTEGER, "f": {"type": ["null", "number"]}, "o": inner, "j": {}, "n": {"type": "null"}}
    texts = ['a"b', "\\", "x\ny\t\r\x00\x1f", "é\u2028日本😀", "", None, "</script>", "'"]
    numbers = [2**63 - 1, -(2**63), 0, 1, 2, None, 3, 4]
    floats = [1e300, 5e-324, -0.1, 1e16, 123456789.123, None, 1.0, 1e-7]
    values = [
        {"s": s, "i": i, "f": f, "o": {'q"': s, "d": [s, None, "k"]} if s else None, "j": [s, {"k": i}]}
        for s, i, f in zip(texts, numbers, floats, strict=True)
    ]
    shop.load("t", columns, values)
    text = read(tmp_path / "source")
    assert [record | {"n": None} for record in values] == records(text)
    load(tmp_path, text)
    assert difference(tmp_path / "source", tmp_path, "t") == []


def test_a_table_that_is_only_added_to(tmp_path: Path) -> None:
    """The whole table first; then exactly the rows of later commits, of newer columns, too; then nothing."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": n} for n in (1, 2)])
    first = read(tmp_path)
    assert (sent(first), activated(first)) == ([1, 2], ["t"])
    shop.load("t", {"id": INTEGER}, [{"id": 3}])
    shop.load("t", {"id": INTEGER, "name": STRING}, rows(4))
    later = read(tmp_path, last_state(first))
    assert (sent(later), activated(later)) == ([3, 4], [])
    assert records(later) == [{"id": 3, "name": None}, {"id": 4, "name": "n4"}]
    versions = {message["version"] for text in (first, later) for message in messages(text, "RECORD")}
    assert len(versions) == 1
    assert sent(read(tmp_path, last_state(later))) == []


def test_a_file_that_was_written_again_for_a_wider_type(tmp_path: Path) -> None:
    """Its rows are not sent again."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    shop.load("t", {"id": STRING}, [{"id": "x"}], evolution=Evolution())
    later = read(tmp_path, state)
    assert (sent(later), activated(later)) == (["x"], [])


def test_a_table_that_is_merged(users: Shop, tmp_path: Path) -> None:
    """Only rows that differ, new ones, and of each one that went its key with the time of the commit."""
    state = last_state(read(tmp_path))
    upsert(users, [*rows(2), {"id": 3, "name": "new"}, *rows(9), {"id": 4, "_sdc_deleted_at": AT}])
    upsert(users, [{"id": 3, "name": "newer"}])
    text = read(tmp_path, state)
    assert activated(text) == []
    changed = [(record["id"], record.get("name")) for record in records(text)]
    assert changed == [(3, "new"), (9, "n9"), (4, None), (3, "newer")]
    deleted = records(text)[2]
    assert set(deleted) == {"id", "_sdc_deleted_at"}
    assert deleted["_sdc_deleted_at"].endswith("Z")
    assert messages(text, "SCHEMA")[0]["key_properties"] == ["id"]


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_a_copy_of_a_merged_table_follows_it(format_: str, tmp_path: Path) -> None:
    """Updates, inserts and deletions over several commits, and a deletion of a file's last row: equal tables."""
    shop = Shop(tmp_path / "source", format=format_)
    upsert(shop, rows(*range(1, 30)))
    state = load(tmp_path, read(tmp_path / "source"))
    changes: list[list[dict[str, Any]]] = [
        rows(3, 50, name="b"),
        [{"id": n, "_sdc_deleted_at": AT} for n in range(1, 25)],
        [*rows(60), {"id": 50, "_sdc_deleted_at": AT}, *rows(1, name="back")],
    ]
    for records_ in changes:
        upsert(shop, records_)
        state = load(tmp_path, read(tmp_path / "source", state))
        assert difference(tmp_path / "source", tmp_path, "users") == []
    (schema,) = messages(read(tmp_path, pipeline="copy"), "SCHEMA")  # the copy is a source as good
    assert schema["key_properties"] == ["id"]
    assert list(schema["schema"]["properties"]) == ["id", "name", "_sdc_deleted_at"]


def test_rows_that_are_marked_as_deleted(users: Shop, tmp_path: Path) -> None:
    """A soft deletion is a row like any other, with its time."""
    state = last_state(read(tmp_path))
    upsert(users, [{"id": 4, "_sdc_deleted_at": AT}], hard_delete=False)
    (record,) = records(read(tmp_path, state))
    assert (record["id"], record["name"], record["_sdc_deleted_at"]) == (4, "n4", "2025-01-01T00:00:00.000000Z")


@pytest.mark.parametrize("hard_delete", [True, False])
def test_the_copy_of_a_table_whose_deletions_are_marked(hard_delete: bool, tmp_path: Path) -> None:
    """Without marked rows it is equal always; with them only by `hard_delete: false`, until all of it is sent again."""
    source, marks = tmp_path / "source", {"streams": {"users": {"hard_delete": hard_delete}}}
    shop = Shop(source)
    upsert(shop, rows(*range(1, 7)))
    state = load(tmp_path, read(source), **marks)
    upsert(shop, [*rows(7), {"id": 4, "_sdc_deleted_at": AT}], hard_delete=False)
    state = load(tmp_path, read(source, state), **marks)
    assert marked(tmp_path, "copy") == ({1, 2, 3, 5, 6, 7}, set() if hard_delete else {4})
    assert marked(source, "shop") == ({1, 2, 3, 5, 6, 7}, {4})
    anew: dict[str, Any] = {"keys": ("id",), "hard_delete": False}
    shop.layout = {"keys": ("id",)}
    shop.load("users", USERS, rows(1, 2, 3), mode="overwrite", **anew)
    load(tmp_path, read(source, state), **marks)
    assert marked(source, "shop") == ({1, 2, 3}, set())
    assert marked(tmp_path, "copy") == ({1, 2, 3}, set() if hard_delete else {4, 5, 6, 7})


def test_an_overwrite_of_a_table_with_a_key(users: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The target warns when changes came, which it adds; not of a whole table, or of the rest of one."""
    folder, warning = tmp_path / "copy", "the tap sent changes"
    folder.mkdir()
    whole = read(tmp_path, state_every=2).splitlines(keepends=True)
    half = load(folder, b"".join(whole[:5]), load_method="overwrite")
    assert half["bookmarks"]["users"]["next"]["rows"] == 2
    state = load(folder, read(tmp_path, half), load_method="overwrite")
    assert difference(tmp_path, folder, "users") == []
    assert warning not in caplog.text
    upsert(users, rows(2, name="b"))
    load(folder, read(tmp_path, state), load_method="overwrite")
    assert f"users: load_method is overwrite, but {warning}" in caplog.text


def marked(root: Path, pipeline: str) -> tuple[set[int], set[int]]:
    """The ids of a lake's users: of those that are not marked as deleted, and of those that are."""
    table = Lake(root / "lake").table(pipeline, "users").to_table().to_pylist()
    ids = [{row["id"] for row in table if (row["_sdc_deleted_at"] is None) == alive} for alive in (True, False)]
    return ids[0], ids[1]


def test_after_an_overwrite_the_whole_table(tmp_path: Path) -> None:
    """Under a greater version, with ACTIVATE_VERSION behind it; a table beside it is not sent again."""
    shop = Shop(tmp_path / "source")
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    shop.load("other", {"id": INTEGER}, [{"id": 7}])
    first = read(tmp_path / "source")
    state = load(tmp_path, first)
    shop.load("t", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    shop.load("t", {"id": INTEGER}, [{"id": 3}])
    later = read(tmp_path / "source", state)
    assert (sent(later), activated(later)) == ([2, 3], ["t"])
    assert messages(later, "ACTIVATE_VERSION")[0]["version"] > messages(first, "ACTIVATE_VERSION")[0]["version"]
    load(tmp_path, later)
    assert difference(tmp_path / "source", tmp_path, "t") == difference(tmp_path / "source", tmp_path, "other") == []


def test_a_rollback_behind_the_bookmark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The whole table, said in the log; one that the rollback did not change goes on."""
    shop = Shop(tmp_path)
    shop.load("other", {"id": INTEGER}, [{"id": 7}])
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    shop.load("t", {"id": INTEGER}, [{"id": 2}])
    state = last_state(read(tmp_path))
    roll_back(shop.storage, "shop", 2)
    text = read(tmp_path, state)
    assert (sent(text), activated(text)) == ([1], ["t"])
    assert "rolled back by commit" in caplog.text


def test_commits_that_were_taken_back_before_the_tap_came(tmp_path: Path) -> None:
    """A lost commit and a rollback of newer ones leave nothing to send, and no whole table."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    shop.lose("t", {"id": INTEGER}, [{"id": 2}])
    shop.load("t", {"id": INTEGER}, [{"id": 3}])
    kept_commit = shop._head
    shop.load("t", {"id": INTEGER}, [{"id": 4}])
    shop._head = roll_back(shop.storage, "shop", kept_commit)[1]
    shop.load("t", {"id": INTEGER}, [{"id": 5}])
    text = read(tmp_path, state)
    assert (sent(text), activated(text)) == ([3, 5], [])


def test_a_rollback_that_was_rolled_back(tmp_path: Path) -> None:
    """What it had removed is there again, and is sent."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    for n in (2, 3, 4):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    roll_back(shop.storage, "shop", 1)
    shop._head = roll_back(shop.storage, "shop", 3)[1]
    shop.load("t", {"id": INTEGER}, [{"id": 5}])
    text = read(tmp_path, state)
    assert (sent(text), activated(text)) == ([2, 3, 5], [])


def test_a_bookmark_whose_commit_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Retention deleted its record: the whole table, said in the log."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    for n in range(2, 202):
        shop.load("t", {"id": INTEGER}, [{"id": n}] if n > 199 else [])
    (shop.root / pipeline_key("shop", "begins.json")).write_text('{"format": 1, "first": 100, "swept": 100}')
    for n in range(1, 100):
        (shop.root / pipeline_key("shop", "commits", f"{n:020d}.json")).unlink(missing_ok=True)
    text = read(tmp_path, state)
    assert (sorted(sent(text)), activated(text)) == ([1, 200, 201], ["t"])
    assert "not in the log any more" in caplog.text


def test_changes_whose_files_are_not_kept(users: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Retention emptied the trash, so nobody knows what an upsert changed: the whole table, said in the log."""
    state = last_state(read(tmp_path))
    upsert(users, rows(1, name="b"))
    shutil.rmtree(users.root / pipeline_key("shop", "trash"))
    text = read(tmp_path, state)
    assert (sorted(sent(text)), activated(text)) == ([1, 2, 3, 4, 5, 6], ["users"])
    assert "gone" in caplog.text


def test_another_lake_in_the_same_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A lake that was deleted and made anew has the same numbers, and is not taken for the old one."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    shutil.rmtree(shop.root)
    shop = Shop(tmp_path)
    for n in (5, 6):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    text = read(tmp_path, state)
    assert (sent(text), activated(text)) == ([5, 6], ["t"])
    assert "made anew" in caplog.text


def test_a_file_of_the_present_table_that_was_deleted(tmp_path: Path) -> None:
    """Nothing but an error is right: fewer rows would look like a whole table."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    for file in shop.root.glob("shop/t/*.parquet"):
        file.unlink()
    with pytest.raises(CommitExpired, match="a file of this commit is gone"):
        read(tmp_path)


def test_a_catalog_selects_streams_and_columns(tmp_path: Path) -> None:
    """Streams and columns, those inside objects, too; columns that came after discovery are sent as well."""
    shop = Shop(tmp_path)
    place = {"type": ["null", "object"], "properties": {"x": INTEGER, "y": STRING}}
    shop.load(
        "t", {"id": INTEGER, "name": STRING, "place": place}, [{"id": 1, "name": "a", "place": {"x": 1, "y": "b"}}]
    )
    shop.load("other", {"id": INTEGER}, [{"id": 7}])
    catalog = discovered(tmp_path)
    for entry in catalog["streams"]:
        for metadata in entry["metadata"]:
            crumb = metadata["breadcrumb"]
            left_out = entry["stream"] == "other" or crumb[1:2] == ["name"] or crumb[1:] == ["place", "properties", "y"]
            metadata["metadata"]["selected"] = not left_out
    shop.load("t", {"id": INTEGER, "late": STRING}, [{"id": 2, "late": "l"}])
    text = read(tmp_path, catalog=catalog)
    assert records(text) == [
        {"id": 1, "place": {"x": 1}, "late": None},
        {"id": 2, "place": None, "late": "l"},
    ]
    (schema,) = messages(text, "SCHEMA")
    assert list(schema["schema"]["properties"]) == ["id", "place", "late"]
    assert list(schema["schema"]["properties"]["place"]["properties"]) == ["x"]


@pytest.mark.parametrize("place", ["metadata", "beside the schema"])
def test_a_full_table_by_the_catalog(place: str, tmp_path: Path) -> None:
    """`replication-method: FULL_TABLE` of the metadata sends the whole table in each run, as the older name does."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    catalog = discovered(tmp_path)
    if place == "metadata":
        root_of(catalog)["replication-method"] = "FULL_TABLE"
    else:
        catalog["streams"][0]["replication_method"] = "FULL_TABLE"
    first = read(tmp_path, catalog=catalog)
    again = read(tmp_path, last_state(first), catalog)
    assert (sent(again), activated(again)) == ([1], ["t"])


def test_discovery_forces_no_replication_method(tmp_path: Path) -> None:
    """So a user may choose FULL_TABLE in bridge.yaml, too; INCREMENTAL, which has no meaning here, is refused."""
    Shop(tmp_path).load("t", {"id": INTEGER}, [{"id": 1}])
    catalog = discovered(tmp_path)
    assert "forced-replication-method" not in root_of(catalog)
    root_of(catalog)["replication-method"] = "INCREMENTAL"
    with pytest.raises(SettingsError, match="does not know this replication method"):
        read(tmp_path, catalog=catalog)


def test_the_key_by_the_catalog(users: Shop, tmp_path: Path) -> None:
    """`table-key-properties` of the metadata counts, of a table with a key of its own, too."""
    catalog = discovered(tmp_path)
    root_of(catalog)["table-key-properties"] = ["id", "name"]
    (schema,) = messages(read(tmp_path, catalog=catalog), "SCHEMA")
    assert schema["key_properties"] == ["id", "name"]


def test_the_key_by_settings(tmp_path: Path) -> None:
    """A table that is only added to has no key unless a setting gives it one; a wrong one is named."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": ID}, [{"id": 1}], keys=("id",))
    (schema,) = messages(read(tmp_path), "SCHEMA")
    assert schema["key_properties"] == []
    (schema,) = messages(read(tmp_path, streams={"t*": {"key_properties": ["id"]}}), "SCHEMA")
    assert schema["key_properties"] == ["id"]
    with pytest.raises(SettingsError, match="a key column is not sent"):
        read(tmp_path, streams={"t": {"key_properties": ["x"]}})


def test_stream_maps_go_record_by_record(tmp_path: Path) -> None:
    """The SDK's mapper sees each record; big numbers keep their digits."""
    shop = Shop(tmp_path)
    columns = {"id": INTEGER, "big": {"type": ["null", "integer"], "maximum": 10**30}}
    shop.load("t", columns, [{"id": 1, "big": 10**25 + 1}])
    text = read(tmp_path, stream_maps={"t": {"twice": "id * 2", "big": "big"}})
    assert records(text) == [{"id": 1, "big": 10**25 + 1, "twice": 2}]


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_read_in_the_same_order(threads: int, tmp_path: Path) -> None:
    """Files are read ahead, and sent in the order of the log."""
    shop = Shop(tmp_path)
    for n in range(8):
        shop.load("t", {"id": INTEGER}, [{"id": n * 10 + k} for k in range(3)])
    assert sent(read(tmp_path, threads=threads, state_every=2)) == [n * 10 + k for n in range(8) for k in range(3)]


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_cut_anywhere_the_copy_is_equal(users: Shop, tmp_path: Path, step: int) -> None:
    """The tap dies behind any line: from the target's last STATE the rest comes, and each row is there once."""
    users.load("log", {"id": INTEGER}, [{"id": n} for n in range(3)])
    users.load("log", {"id": INTEGER}, [{"id": n} for n in range(3, 5)])
    whole = read(tmp_path, state_every=2)
    before = tmp_path / "before"
    before.mkdir()
    full = load(before, whole)
    upsert(users, [*rows(3, name="b"), *rows(11, 12), {"id": 4, "_sdc_deleted_at": AT}])
    users.load("log", {"id": INTEGER}, [{"id": n} for n in range(9, 12)])
    for start, text in ((None, whole), (full, read(tmp_path, full, state_every=2))):
        lines = text.splitlines(keepends=True)
        for cut in range(1, len(lines), step):
            copy = tmp_path / "copy"
            shutil.copytree(before, copy) if start else copy.mkdir()
            state = load(copy, b"".join(lines[:cut]), batch_size_rows=1) or start
            load(copy, read(tmp_path, state, state_every=2), batch_size_rows=1)
            for stream in ("users", "log"):
                assert difference(tmp_path, copy, stream) == [], (cut, stream, lines[:cut][-1])
            shutil.rmtree(copy)


def test_a_view_follows_its_groups(tmp_path: Path) -> None:
    """By its GROUP BY as the key: groups that changed, came and went; not a view's hidden columns."""
    views = Views(tmp_path / "source")
    views.put(counts(a=1, b=2, c=3))
    first = read(tmp_path / "source")
    assert records(first) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}]
    state = load(tmp_path, first)
    views.put(counts(a=1, c=4, d=5))
    text = read(tmp_path / "source", state)
    assert [(record["id"], record.get("n")) for record in records(text)] == [("a", 1), ("c", 4), ("d", 5), ("b", None)]
    assert (messages(text, "SCHEMA")[0]["key_properties"], activated(text)) == (["id"], [])
    load(tmp_path, text)
    assert difference(tmp_path / "source", tmp_path, "counts") == []


def test_a_view_with_a_group_of_null(tmp_path: Path) -> None:
    """No target takes null in a key, so the view has none, and is sent as a whole when it changes."""
    views = Views(tmp_path)
    views.put(pa.table({"id": pa.array(["a", None]), "n": [1, 2]}))
    first = read(tmp_path)
    views.put(pa.table({"id": pa.array(["a", None]), "n": [1, 3]}))
    text = read(tmp_path, last_state(first))
    assert (messages(text, "SCHEMA")[0]["key_properties"], activated(text)) == ([], ["counts"])
    assert records(text) == [{"id": "a", "n": 1}, {"id": None, "n": 3}]


def test_fields_outside_the_schema(tmp_path: Path) -> None:
    """The column `_sdc_extra` is an object in the record."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1, "more": {"a": [1]}}, {"id": 2}])
    assert records(read(tmp_path)) == [{"id": 1, "_sdc_extra": {"more": {"a": [1]}}}, {"id": 2, "_sdc_extra": None}]


def test_nan_becomes_null_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """JSON has no NaN and no infinity."""
    Views(tmp_path).put(pa.table({"id": ["a", "b"], "n": [float("nan"), 1.5]}))
    assert [record["n"] for record in records(read(tmp_path))] == [None, 1.5]
    assert "null in n" in caplog.text


def test_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Over S3 the same: the whole table, then what changed, by files that an upsert moved to the trash."""
    s3.bucket("source")
    shop = Shop(tmp_path, open_storage("s3://source/lake"))
    upsert(shop, rows(1, 2, 3))
    first = read(tmp_path, bucket="s3://source/lake", threads=2)
    upsert(shop, rows(2, name="b"))
    text = read(tmp_path, last_state(first), bucket="s3://source/lake")
    assert (sent(first), sent(text), activated(text)) == ([1, 2, 3], [2], [])


def batches(root: Path, **more: Any) -> dict[str, Any]:
    """The settings with which the tap sends files of Arrow."""
    return {"batch_config": {"encoding": {"format": "arrow"} | more, "storage": {"root": (root / "files").as_uri()}}}


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_copy_by_batches_is_the_copy_by_records(tmp_path: Path, compression: str) -> None:
    """All types, JSON and odd names, deletions, a table that is replaced: columnar all the way, and equal."""
    shop, _ = filled(tmp_path / "source")
    by_records, by_batches = tmp_path / "records", tmp_path / "batches"
    by_records.mkdir()
    by_batches.mkdir()
    config = batches(tmp_path, compression=compression)
    state: Any = None
    for change in (lambda: None, lambda: upsert(shop, [*rows(1, 2, 900), {"id": 3, "_sdc_deleted_at": AT}])):
        change()
        text = read(tmp_path / "source", state=state, **config)
        assert records(text) == []
        assert messages(text, "BATCH")
        load(by_batches, text)
        load(by_records, read(tmp_path / "source", state=state))
        state = last_state(text)
    for stream in Lake(by_records / "lake").tables("copy"):
        one, other = (Lake(copy / "lake").table("copy", stream) for copy in (by_records, by_batches))
        assert one.schema == other.schema
        columns = [name for name in one.schema.names if not name.startswith("_sdc_")]
        order = [(name, "ascending") for name in columns if not pa.types.is_nested(one.schema.field(name).type)]
        left, right = (each.to_table().select(columns).sort_by(order).to_pylist() for each in (one, other))
        assert left == right, stream


def test_batches_have_as_many_rows_as_they_are_to_have(tmp_path: Path) -> None:
    """A file has `batch_size` rows or a few more; the STATE stands behind the file whose rows it covers."""
    shop = Shop(tmp_path)
    for part in range(4):
        shop.load("log", {"id": INTEGER}, [{"id": part * 100 + n} for n in range(100)])
    config = batches(tmp_path)
    config["batch_config"]["batch_size"] = 150
    text = read(tmp_path, state_every=1000, **config)
    files = [message["manifest"][0].removeprefix("file://") for message in messages(text, "BATCH")]
    assert [pa.ipc.open_file(file).read_all().num_rows for file in files] == [200, 200]
    kinds = [message["type"] for message in map(json.loads, text.splitlines())]
    assert kinds == ["SCHEMA", "STATE", "BATCH", "BATCH", "ACTIVATE_VERSION", "STATE"]


@pytest.mark.parametrize("root", ["s3://bucket/x", "", "file://"])
def test_a_folder_for_batches_that_is_none(tmp_path: Path, root: str) -> None:
    """It is refused before anything is sent."""
    shop = Shop(tmp_path)
    shop.load("log", {"id": INTEGER}, [{"id": 1}])
    config = {"batch_config": {"encoding": {"format": "arrow"}, "storage": {"root": root}}}
    with pytest.raises(SettingsError, match=r"batch_config\.storage\.root is no folder"):
        read(tmp_path, **config)
