"""The STATEs of other tools: what is carried over, what comes back, what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.exact_json import dumps
from bridge.lake.state.exchange import FORMATS
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted
from bridge.lake.state.exchange.olake_positions import TAPS

SDK = {
    "bookmarks": {
        "public-orders": {"replication_key": "updated_at", "replication_key_value": "2025-03-01T12:00:00.123456+00:00"},
        "public-order-items": {"replication_key": "id", "replication_key_value": 9007199254740993},
        "users": {"replication_key": "id", "replication_key_value": "5f1e"},
        "public-rates": {},
    }
}
PARTITIONED = {"bookmarks": {"s": {"partitions": [{"context": {"store": 1}, "replication_key_value": 5}]}}}
LOG_BASED = {"bookmarks": {"db-t": {"log_file": "mysql-bin.000003", "log_pos": 3244, "version": 1501}}}
IN_FLIGHT = {"bookmarks": {"s": {"replication_key": "id", "replication_key_value": 5, "progress_markers": {"x": 1}}}}
FLAT = {"users": 2}


def read(tool: str, document: Any, which: str | None = None, *streams: str) -> Any:
    return converted(tool, document, ConversionRequest(which, streams)).value


def converted(tool: str, document: Any, request: ConversionRequest) -> Converted:
    data = document if isinstance(document, bytes) else dumps(document)
    return FORMATS[tool].read(data, request)


def write(tool: str, state: Any, *streams: str, tap: str | None = None) -> Any:
    return FORMATS[tool].write(state, ConversionRequest(None, streams, tap)).value


@pytest.mark.parametrize("state", [SDK, PARTITIONED, LOG_BASED, IN_FLIGHT, FLAT, {"bookmarks": {}}])
@pytest.mark.parametrize("tool", ["singer", "meltano", "dataspoc"])
def test_there_and_back(tool: str, state: Any) -> None:
    """What is exported is read back as the same STATE, whatever its taps keep in it."""
    assert read(tool, write(tool, state)) == state


def test_there_and_back_by_olake() -> None:
    """Cursors come back from OLake's format under the same names, to the last digit."""
    document = write("olake", SDK)
    assert read("olake", document) == SDK
    assert document["streams"][1] == {
        "stream": "order-items",
        "namespace": "public",
        "sync_mode": "",
        "state": {"chunks": [], "id": 9007199254740993},
    }


# Singer


@pytest.mark.parametrize(
    "data",
    [
        b'{"type": "STATE", "value": {"bookmarks": {"s": 5}}}\n',
        b'{\n "bookmarks": {"s": 5}\n}',
        b'{"bookmarks": {"s": 4}}\n{"bookmarks": {"s": 5}}\n\n',
        b'{"type":"STATE","value":{"bookmarks":{"s":4}}}\r\n{"type":"STATE","value":{"bookmarks":{"s":5}}}\r\n',
    ],
)
def test_what_taps_and_targets_write(data: bytes) -> None:
    """A bare value, a STATE message, and what a target printed, of which the last line counts."""
    assert read("singer", data) == {"bookmarks": {"s": 5}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"bookmarks": {"s": 4}}\n{"bookmarks": {"s"', "not JSON"),
        (b'{"type":"SCHEMA","stream":"s","schema":{}}\n{"type":"STATE","value":{"s":4}}', "a tap's output"),
        (b"", "not JSON"),
        (b"INFO hello", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_singer_state(data: bytes, message: str) -> None:
    """A line cut short, and a tap's output of which nobody knows how much was loaded, are refused, not guessed at."""
    with pytest.raises(SettingsError, match=message) as caught:
        read("singer", data)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("document", "owner"),
    [
        (SDK, "singer"),
        ({"singer_state": SDK}, "meltano"),
        ({"completed": {"singer_state": SDK}, "partial": None}, "meltano"),
        ({"dev:a-to-b": {"completed": {"singer_state": SDK}, "partial": {}}}, "meltano"),
        ({"type": "STREAM", "streams": []}, "olake"),
        ({"type": "GLOBAL", "global": {"state": {}, "streams": []}}, "olake"),
    ],
)
def test_the_wrong_format(document: Any, owner: str) -> None:
    """Each tool's file would pass for a flat STATE: under another format it is refused, and the right one is named."""
    for tool in FORMATS.keys() - {owner, "dataspoc" if owner == "singer" else owner}:
        with pytest.raises(SettingsError) as caught:
            read(tool, document)
        assert f"--format {owner}" in caught.value.hint


# Meltano


@pytest.mark.parametrize(
    ("completed", "partial", "state"),
    [
        ({"a": {"id": 1}, "b": {"id": 1}}, {"a": {"id": 7}}, {"a": {"id": 7}, "b": {"id": 1}}),
        ({"a": {"id": 1, "at": "x"}}, {"a": {"id": 7}}, {"a": {"id": 7, "at": "x"}}),
        ({"a": {"partitions": [1, 2]}}, {"a": {"partitions": [3]}}, {"a": {"partitions": [3]}}),
        ({"a": "text"}, {"a": {"id": 7}}, {"a": {"id": 7}}),
    ],
)
def test_partial_state_lies_over_the_complete(completed: Any, partial: Any, state: Any) -> None:
    """The STATE is the one of Meltano's next run: partial over completed, object by object, lists replaced whole."""
    document = {
        "completed": {"singer_state": {"bookmarks": completed}},
        "partial": {"singer_state": {"bookmarks": partial}},
    }
    assert read("meltano", document) == {"bookmarks": state}


@pytest.mark.parametrize("other", [None, {}])
def test_only_one_half(other: Any) -> None:
    """A backend's file may lack either half."""
    half = {"singer_state": SDK}
    assert read("meltano", {"completed": half, "partial": other}) == SDK
    assert read("meltano", {"completed": other, "partial": half}) == SDK
    assert read("meltano", {"completed": half}) == SDK


def test_meltano_without_state() -> None:
    """A state ID that never ran has nothing to import, and that is said."""
    with pytest.raises(SettingsError, match="no `singer_state`"):
        read("meltano", {"completed": {}, "partial": {}})


def test_meltano_export_of_several() -> None:
    """Of several state IDs one has to be named, and the error lists them."""
    document = {
        f"dev:tap-{n}-to-x": {"completed": {"singer_state": {"bookmarks": {"s": n}}}, "partial": None} for n in "ab"
    }
    assert read("meltano", document, "dev:tap-b-to-x") == {"bookmarks": {"s": "b"}}
    for which in (None, "dev:tap-c-to-x"):
        with pytest.raises(SettingsError, match="which state ID") as caught:
            read("meltano", document, which)
        assert "dev:tap-a-to-x, dev:tap-b-to-x" in caught.value.hint


@pytest.mark.parametrize(
    ("tool", "inside"), [("meltano", "{}/state.json"), ("dataspoc", ".dataspoc/state/{}/state.json")]
)
def test_where_a_folder_keeps_it(tmp_path: Path, tool: str, inside: str) -> None:
    """In a tool's own folder its file is found: the only one, or the one that is named."""
    place = FORMATS[tool].place
    assert place
    with pytest.raises(SettingsError, match="which"):
        place(tmp_path, None)
    for name in ("one", "two"):
        path = tmp_path / inside.format(name)
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        if name == "one":
            assert place(tmp_path, None) == path
    assert place(tmp_path, "two") == tmp_path / inside.format("two")
    with pytest.raises(SettingsError, match="which") as caught:
        place(tmp_path, None)
    assert "one, two" in caught.value.hint


# DataSpoc


@pytest.mark.parametrize("state", [None, {}, [1], "text"])
def test_what_dataspoc_cannot_keep(state: Any) -> None:
    """DataSpoc passes only an object that is not empty to its tap: anything else is refused."""
    with pytest.raises(SettingsError, match="DataSpoc"):
        write("dataspoc", state)


# OLake


def olake(*streams: Any, **more: Any) -> dict[str, Any]:
    return {"type": "STREAM", "version": 7, "streams": list(streams), **more}


def entry(state: Any, stream: str = "orders", namespace: str = "public", sync_mode: str = "") -> dict[str, Any]:
    return {"stream": stream, "namespace": namespace, "sync_mode": sync_mode, "state": state}


GOOD = entry({"chunks": [], "updated_at": "2025-03-01T12:00:00.000000000Z"}, stream="good")
CURSOR = {"replication_key": "updated_at", "replication_key_value": "2025-03-01T12:00:00.000000000Z"}


def test_olake_cursors() -> None:
    """A stream is called as SQL taps call it; one without namespace, as from S3, keeps its name; one that OLake would
    begin anew begins anew.
    """
    s3 = {"stream": "users", "state": {"_last_modified_time": "2025-01-01T00:00:00Z", "chunks": []}}
    empty = entry({"chunks": [], "updated_at": None}, stream="empty", sync_mode="incremental")
    assert read("olake", olake(GOOD, s3, empty)) == {
        "bookmarks": {
            "public-good": CURSOR,
            "users": {"replication_key": "_last_modified_time", "replication_key_value": "2025-01-01T00:00:00Z"},
            "public-empty": {},
        }
    }


LOG = "from the database's log"
CHUNKS = [{"min": "1", "max": "5"}]
TOKEN = "8267B34D61000000022B0429296E1404"


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (entry({"_data": TOKEN, "chunks": []}), LOG),
        (entry({"lsn": "000001d4:00000a28:0001", "chunks": []}), LOG),
        (entry({"chunks": [], "id": 5}, sync_mode="strict_cdc"), LOG),
        (entry({"chunks": CHUNKS, "id": 5}), "first load of this stream is not"),
        (entry({"chunks": CHUNKS, "_data": TOKEN}), "first load of this stream is not"),
        (entry({"_data": TOKEN}), "first load of this stream is not"),
        (entry({"id": 5}), "first load of this stream is not"),
        (entry({"chunks": [], "id": 5, "updated_at": "x"}), "two cursors"),
    ],
)
def test_what_olake_has_and_a_tap_cannot_use(left_out: Any, reason: str) -> None:
    """What cannot be carried over is left out, with a note; asked for, or alone, it is an error. Both name it."""
    document = olake(GOOD, left_out)
    result = converted("olake", document, ConversionRequest())
    assert result.value == {"bookmarks": {"public-good": CURSOR}}
    assert [text.split(":")[0] for text in result.notes] == ["public-orders starts from the beginning"]
    assert reason in result.notes[0]
    assert converted("olake", document, ConversionRequest(streams=["public-good"])) == Converted(result.value)
    for failing in (
        ConversionRequest(streams=["public-orders"]),
        ConversionRequest(streams=["public-orders", "public-good"]),
    ):
        with pytest.raises(SettingsError, match=reason) as caught:
            converted("olake", document, failing)
        assert "stream=public-orders" in caught.value.message
        assert caught.value.hint
    with pytest.raises(SettingsError, match=reason):
        read("olake", olake(left_out))


EARLY = {"type": "STREAM"}
POSTGRES = {"state": {"lsn": "2D9/AD00445A"}, "streams": ["public.orders"]}
MYSQL = {"state": {"server_id": 8000, "state": {"position": {"Name": "mysql-bin.000040", "Pos": 7688}}}}


@pytest.mark.parametrize(
    ("tap", "document", "expected"),
    [
        (
            "meltanolabs-tap-mongodb",
            EARLY | {"streams": [entry({"_data": TOKEN}, "Orders", "shop")]},
            {"orders": {"replication_key": "replication_key", "replication_key_value": TOKEN}},
        ),
        (
            "pipelinewise-tap-mongodb",
            EARLY | {"streams": [entry({"resume_token": {"_data": TOKEN}}, "orders", "shop", "cdc")]},
            {"shop-orders": {"last_replication_method": "LOG_BASED", "token": {"_data": TOKEN}}},
        ),
        (
            "tap-mongodb",
            olake(entry({"_data": TOKEN, "chunks": []}, "orders", "shop")),
            {
                "shop-orders": {
                    "last_replication_method": "LOG_BASED",
                    "initial_full_table_complete": True,
                    "oplog_ts_time": 0x67B34D61,
                    "oplog_ts_inc": 2,
                    "version": 1,
                }
            },
        ),
        (
            "meltanolabs-tap-postgres",
            olake(entry({"chunks": []}), GOOD, **{"global": POSTGRES}),
            {
                "public-orders": {"replication_key": "_sdc_lsn", "replication_key_value": 0x2D9AD00445A},
                "public-good": CURSOR,
            },
        ),
        (
            "pipelinewise-tap-postgres",
            {"type": "GLOBAL", "global": POSTGRES},
            {"public-orders": {"last_replication_method": "LOG_BASED", "lsn": 0x2D9AD00445A, "version": 1}},
        ),
        *(
            (
                tap,
                olake(entry({"chunks": []}, "t", "db"), **{"global": {**MYSQL, "streams": ["db.t"]}}),
                {
                    "db-t": {
                        "last_replication_method": "LOG_BASED",
                        "log_file": "mysql-bin.000040",
                        "log_pos": 7688,
                        "version": 1,
                    }
                },
            )
            for tap in ("pipelinewise-tap-mysql", "tap-mysql")
        ),
        (
            "pipelinewise-tap-mssql",
            olake(entry({"lsn": "000001d400000a280001", "chunks": []}, "t", "dbo")),
            {"dbo-t": {"lsn": "000001d400000a280001", "initial_full_table_complete": True}},
        ),
        (
            "pipelinewise-tap-mssql",
            {"type": "GLOBAL", "global": {"state": {"lsn": "000001d4:00000a28:0001"}, "streams": ["dbo.t"]}},
            {"dbo-t": {"lsn": "000001d400000a280001", "initial_full_table_complete": True}},
        ),
    ],
)
def test_positions_as_a_tap_keeps_them(tap: str, document: Any, expected: Any) -> None:
    """--as TAP: the bookmark that the tap itself would have written; what it depends on is said."""
    result = converted("olake", document, ConversionRequest(tap=tap))
    assert result.value == {"bookmarks": expected}
    assert not TAPS[tap].note or f"{tap}: {TAPS[tap].note}" in result.notes
    assert not any("starts from the beginning" in text for text in result.notes)


def test_early_files_do_not_say_whether_the_first_load_was_complete() -> None:
    """Without `version` an entry without `chunks` is carried over, with a note; a tap is asked for where one helps."""
    document = EARLY | {"streams": [entry({"id": 5}), entry({"_data": TOKEN}, "users")]}
    result = converted("olake", document, ConversionRequest())
    assert result.value == {"bookmarks": {"public-orders": {"replication_key": "id", "replication_key_value": 5}}}
    assert result.notes[0].startswith("public-orders: the file does not say whether OLake's first load was complete")
    assert "with --as, one of: meltanolabs-tap-mongodb, pipelinewise-tap-mongodb, tap-mongodb" in result.notes[1]


def test_a_tap_that_cannot_read_the_position(tmp_path: Path) -> None:
    """A tap of another database, and a cursor whose type a tap of MongoDB would have to guess, are left out."""
    document = olake(GOOD, entry({"_data": TOKEN, "chunks": []}))
    result = converted("olake", document, ConversionRequest(tap="tap-mysql"))
    assert result.value == {"bookmarks": {"public-good": CURSOR}}
    assert "its position is a resume token, which tap-mysql cannot read" in result.notes[0]
    result = converted("olake", document, ConversionRequest(tap="pipelinewise-tap-mongodb"))
    assert list(result.value["bookmarks"]) == ["public-orders"]
    assert "public-good starts from the beginning: pipelinewise-tap-mongodb also needs the type" in result.notes[0]


def test_olake_cdc_alone() -> None:
    """PostgreSQL's and MySQL's state is one position for all tables: without a tap it is refused as such."""
    document = {"type": "GLOBAL", "global": {"state": {"lsn": "2D9/AD00445A"}, "streams": ["public.t"]}}
    document["streams"] = [entry({"chunks": []}, stream="t")]
    with pytest.raises(SettingsError, match=r"from the database's log.*LSN of PostgreSQL stream=public-t") as caught:
        read("olake", document)
    assert "--as, one of: meltanolabs-tap-postgres, pipelinewise-tap-postgres" in caught.value.hint
    with pytest.raises(SettingsError, match="no stream with a position"):
        read("olake", {"type": "STREAM", "global": {"state": {"consumer_group_id": "x"}}})


@pytest.mark.parametrize(
    ("tap", "bookmarks", "streams", "common"),
    [
        (
            "pipelinewise-tap-mongodb",
            {"shop-orders": {"token": {"_data": TOKEN}, "last_replication_method": "LOG_BASED"}},
            [entry({"chunks": [], "_data": TOKEN}, "orders", "shop")],
            None,
        ),
        (
            "meltanolabs-tap-postgres",
            {
                "public-a": {"replication_key": "_sdc_lsn", "replication_key_value": 0x2D9AD00445B},
                "public-b": {"replication_key": "_sdc_lsn", "replication_key_value": 0x2D9AD00445A},
                "public-good": CURSOR,
            },
            [entry({"chunks": []}, "a"), entry({"chunks": []}, "b"), GOOD],
            {"state": {"lsn": "2D9/AD00445A"}, "streams": ["public.a", "public.b"]},
        ),
        (
            "tap-mysql",
            {
                "db-a": {"log_file": "mysql-bin.1000000", "log_pos": 5, "version": 7},
                "db-b": {"log_file": "mysql-bin.999999", "log_pos": 300, "version": 7},
            },
            [entry({"chunks": []}, "a", "db"), entry({"chunks": []}, "b", "db")],
            {
                "state": {"server_id": 1, "state": {"position": {"Name": "mysql-bin.999999", "Pos": 300}}},
                "streams": ["db.a", "db.b"],
            },
        ),
        (
            "pipelinewise-tap-mssql",
            {"dbo-t": {"lsn": "000001d400000a280001", "initial_full_table_complete": True}},
            [entry({"chunks": [], "lsn": "000001d400000a280001"}, "t", "dbo")],
            None,
        ),
    ],
)
def test_a_taps_own_positions_for_olake(tap: str, bookmarks: Any, streams: Any, common: Any) -> None:
    """--as TAP on the way to OLake: each stream's position, or the earliest where OLake keeps one for all."""
    document = write("olake", {"bookmarks": bookmarks}, tap=tap)
    if "server_id" in (document.get("global") or {}).get("state", {}):
        assert 1000 <= document["global"]["state"]["server_id"] < 2**32 - 1
        document["global"]["state"]["server_id"] = 1
    assert document["streams"] == streams
    assert document.get("global") == common


def test_what_olake_cannot_go_on_from_is_left_out() -> None:
    """With a note where other streams remain; an error where it was asked for by name."""
    state = {"bookmarks": {"public-good": CURSOR, **LOG_BASED["bookmarks"]}}
    result = FORMATS["olake"].write(state, ConversionRequest())
    assert [stream["stream"] for stream in result.value["streams"]] == ["good"]
    assert "db-t is left out, and OLake loads it from the beginning" in result.notes[0]
    assert "--as" in result.notes[0]
    with pytest.raises(SettingsError, match="OLake cannot go on from this bookmark stream=db-t"):
        write("olake", state, "db-t", "public-good")


def test_two_tables_of_olake_with_one_name() -> None:
    """`a-b`.`c` and `a`.`b-c` would be one stream: neither is lost silently."""
    document = olake(entry({"chunks": [], "id": 1}, "c", "a-b"), entry({"chunks": [], "id": 2}, "b-c", "a"))
    with pytest.raises(SettingsError, match="one name here stream=a-b-c"):
        read("olake", document)


@pytest.mark.parametrize("text", ['{"type": "STREAM", "streams": [{}]}', '{"type": "STREAM", "streams": [5]}'])
def test_a_damaged_olake_file(text: str) -> None:
    """An entry without a name is no stream."""
    with pytest.raises(SettingsError, match="no STATE as OLake keeps it"):
        read("olake", text.encode())


@pytest.mark.parametrize(
    "state",
    [
        *(FLAT, PARTITIONED, LOG_BASED, IN_FLIGHT),
        {"bookmarks": {"s": None}},
        {"bookmarks": {"s": {"replication_key": "chunks", "replication_key_value": 5}}},
        {"bookmarks": {"s": {"replication_key": "lsn", "replication_key_value": 5}}},
        {"bookmarks": {"s": {"replication_key": "_sdc_lsn", "replication_key_value": 5}}},
        {"bookmarks": {"s": {"replication_key": "id", "replication_key_value": None}}},
        {"bookmarks": {}, "currently_syncing": "s"},
    ],
)
def test_what_olake_has_no_place_for(state: Any) -> None:
    """A bookmark that OLake could not go on from is an error with what to do, never left out."""
    with pytest.raises(SettingsError) as caught:
        write("olake", state)
    assert caught.value.hint


def test_notes_that_olake_has_no_use_for() -> None:
    """PipelineWise's notes beside a cursor are left out; the cursor is carried over."""
    notes = {"version": 1700000000, "last_replication_method": "INCREMENTAL"}
    state = {"bookmarks": {"public-good": CURSOR | notes}, "currently_syncing": None}
    assert read("olake", write("olake", state)) == {"bookmarks": {"public-good": CURSOR}}
    assert json.loads(dumps(write("olake", state)))["type"] == "STREAM"
