"""Whose a table is, where it is and how it is loaded: decided once a stream, and never to the harm of others' rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from msgspec import structs

from bridge.errors import CorruptLake, LakeError, SettingsError
from bridge.lake.file_records import LiveFile
from bridge.lake.log import Log, Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableState
from bridge.lake.schemas import read_schema
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.tables.auto import load_method
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.write.partition import Partition
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import StreamKeys
from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Pipeline
from tests.support.records import staged_table
from tests.support.tables import INTEGER, STRING, Shop

COLUMNS = from_singer({"properties": {"id": {"type": "integer"}, "gone": {"type": "string"}}}, [])


def folders(placement: TablePlanner) -> dict[str, str]:
    return {stream: target.folder for stream, target in placement.layouts.items()}


def pipeline(root: Path, name: str = "p", path: str = "{pipeline}", load_method: str = "auto") -> Pipeline:
    made = inline_pipeline(
        name=name,
        bucket=str(root),
        tap="tap",
        load_method=load_method,
        environ={},
    )
    return made.model_copy(update={"destination": made.destination.model_copy(update={"path": path})})


def catalog(method: str) -> dict[str, Any]:
    metadata = [{"breadcrumb": [], "metadata": {"replication-method": method}}]
    return {"streams": [{"tap_stream_id": "s", "metadata": metadata}]}


def schema(stream: str, bookmarks: list[str] | None = None) -> Schema:
    return Schema(stream, {"properties": {"id": {"type": "integer"}}}, ["id"], bookmarks)


def table(folder: str, *files: str, columns: str | None = None) -> TableState:
    return TableState(folder, columns, {name: LiveFile(1, 1) for name in files})


def placed(
    root: Path,
    settings: Pipeline | None = None,
    snapshot: Snapshot | None = None,
    found: dict[str, Any] | None = None,
    **flags: bool,
) -> TablePlanner:
    asked = {"full": False, "append": False} | flags
    return TablePlanner(LocalStorage(root), settings or pipeline(root), snapshot or Snapshot(), found, **asked)


UNKNOWN = "no replication method is known"


@pytest.mark.parametrize(
    ("setting", "method", "bookmarks", "keys", "expected", "reason"),
    [
        ("append-only", "FULL_TABLE", ["id"], ["id"], "append-only", "as set"),
        ("append-only", None, None, ["id"], "append-only", "as set"),
        ("overwrite", "INCREMENTAL", ["id"], ["id"], "overwrite", "as set"),
        ("upsert", "FULL_TABLE", ["id"], ["id"], "upsert", "as set"),
        ("auto", "FULL_TABLE", ["id"], ["id"], "overwrite", "the catalog says FULL_TABLE"),
        ("auto", "INCREMENTAL", None, ["id"], "append-only", "the catalog says INCREMENTAL"),
        ("auto", "LOG_BASED", None, ["id"], "upsert", "the catalog says LOG_BASED: by key id"),
        ("auto", "LOG_BASED", None, [], "append-only", "the catalog says LOG_BASED"),
        ("auto", None, ["updated", "id"], ["id"], "append-only", "incremental: bookmark updated, id"),
        ("auto", None, [], ["a", "b"], "upsert", f"{UNKNOWN}: by key a, b"),
        ("auto", None, None, ["id"], "upsert", f"{UNKNOWN}: by key id"),
        ("auto", None, None, [], "append-only", f"{UNKNOWN}, and no key"),
    ],
)
def test_load_method(
    setting: str, method: str | None, bookmarks: list[str] | None, keys: list[str], expected: str, reason: str
) -> None:
    """A setting decides, then the catalog, then the bookmark, then the key; nothing is deleted on a guess."""
    assert load_method(setting, method, bookmarks, keys) == (expected, reason)


def test_a_shared_table_is_only_added_to() -> None:
    """Whose keys are in it nobody knows, so nothing of it is merged without being asked."""
    assert load_method("auto", None, None, ["id"], shared=True) == (
        "append-only",
        f"{UNKNOWN}, and a shared table is only added to",
    )
    assert load_method("auto", "LOG_BASED", None, ["id"], shared=True)[0] == "append-only"


@pytest.mark.parametrize(
    ("method", "full", "append", "expected"),
    [
        ("INCREMENTAL", False, False, "append-only"),
        ("INCREMENTAL", True, False, "overwrite"),
        ("INCREMENTAL", True, True, "append-only"),
        ("FULL_TABLE", True, True, "overwrite"),
        ("FULL_TABLE", False, False, "overwrite"),
    ],
)
def test_full(tmp_path: Path, method: str, full: bool, append: bool, expected: str) -> None:
    """`--full` replaces every table; with `--append` only those that are replaced anyway."""
    stream, _ = placed(tmp_path, found=catalog(method), full=full, append=append).open(schema("s"))
    assert stream.method == expected


def overridden(root: Path, streams: dict[str, StreamKeys], load_method: str = "auto") -> Pipeline:
    return pipeline(root, load_method=load_method).model_copy(update={"streams": streams})


@pytest.mark.parametrize(
    ("streams", "full", "append", "expected"),
    [
        ({"s": StreamKeys(load_method="overwrite")}, False, False, ("overwrite", "as set for s")),
        ({"*": StreamKeys(load_method="append-only")}, False, False, ("append-only", "as set for *")),
        ({"*": StreamKeys(load_method="append-only")}, True, True, ("append-only", "as set for *")),
        ({"s": StreamKeys(load_method="auto")}, False, False, ("append-only", "the catalog says INCREMENTAL")),
        ({"other": StreamKeys(load_method="append-only")}, False, False, ("overwrite", "as set")),
        ({"*": StreamKeys(key_properties=["id"])}, False, False, ("overwrite", "as set")),
    ],
)
def test_a_stream_of_its_own_method(
    tmp_path: Path, streams: dict[str, StreamKeys], full: bool, append: bool, expected: tuple[str, str]
) -> None:
    """What `streams` says goes before the destination's `load_method`, and the reason names the glob."""
    settings = overridden(tmp_path, streams, "overwrite")
    stream, _ = placed(tmp_path, settings, found=catalog("INCREMENTAL"), full=full, append=append).open(schema("s"))
    assert (stream.method, stream.plan.reason) == expected


def test_keys_of_the_settings(tmp_path: Path) -> None:
    """`key_properties` of a stream replace those of the SCHEMA, none at all too; a column that is not there is told."""
    placement = placed(tmp_path, overridden(tmp_path, {"s": StreamKeys(key_properties=[])}))
    assert [placement.open(schema(name))[0].plan.keys for name in ("s", "t")] == [(), ("id",)]
    twice = placed(tmp_path, overridden(tmp_path, {"s": StreamKeys(key_properties=["id", "id"])}))
    assert twice.open(schema("s"))[0].plan.keys == ("id",)
    with pytest.raises(SettingsError, match="key_properties names no column stream=s key=ids") as caught:
        placed(tmp_path, overridden(tmp_path, {"s": StreamKeys(key_properties=["ids"])})).open(schema("s"))
    assert caught.value.hint == 'did you mean "id"?'


def test_folders(tmp_path: Path) -> None:
    """A new stream's folder is its name below the pipeline's path, made safe, and apart from its twins."""
    placement = placed(tmp_path, pipeline(tmp_path, path="team/{pipeline}"))
    for name in ("Orders", "orders", "a/b"):
        placement.open(schema(name))
    assert folders(placement) == {
        "Orders": "team/p/Orders",
        "orders": "team/p/orders_2",
        "a/b": "team/p/a~2Fb",
    }


def test_known_table_stays_where_it_is(tmp_path: Path) -> None:
    """A table keeps the folder that the log names, in whatever order its streams speak today."""
    view = Snapshot(1, PipelineState(), {"orders": table("p/orders"), "Orders": table("p/Orders_2")})
    placement = placed(tmp_path, snapshot=view)
    for name in ("Orders", "orders"):
        placement.open(schema(name))
    assert folders(placement) == {"orders": "p/orders", "Orders": "p/Orders_2"}


def test_a_new_path_is_refused(tmp_path: Path) -> None:
    """A table does not move because `destination.path` changed: its rows would be in two places."""
    placement = placed(
        tmp_path, pipeline(tmp_path, path="elsewhere"), Snapshot(1, PipelineState(), {"s": table("p/s")})
    )
    with pytest.raises(SettingsError, match="the table is in another folder stream=s folder=p/s") as caught:
        placement.open(schema("s"))
    assert "keep destination.path" in caught.value.hint
    assert not (tmp_path / ".bridge").exists()


def test_columns_of_the_table(tmp_path: Path) -> None:
    """An append gets the columns that the table has, a replacement starts from the SCHEMA alone."""
    storage = LocalStorage(tmp_path)
    storage.write(f".bridge/p/schemas/{COLUMNS.hash}.json", b'{"format":1,"columns":' + COLUMNS.to_json() + b"}")
    view = Snapshot(1, PipelineState(), {"s": table("p/s", columns=COLUMNS.hash)})
    assert placed(tmp_path, snapshot=view).open(schema("s"))[1] == COLUMNS
    assert placed(tmp_path, pipeline(tmp_path, load_method="overwrite"), view).open(schema("s"))[1] is None
    assert placed(tmp_path).open(schema("new"))[1] is None


@pytest.mark.parametrize(
    ("bookmark", "flags", "extended"),
    [
        ({"version": 7, "last_pk": 3}, {}, True),
        ({"version": 7}, {}, False),
        ({"version": 8, "last_pk": 3}, {}, False),
        ({"version": 7, "last_pk": 3}, {"full": True}, False),
        (None, {}, False),
    ],
)
def test_a_table_that_was_swapped_before_its_end(
    tmp_path: Path, bookmark: Any, flags: dict[str, bool], extended: bool
) -> None:
    """A tap that goes on inside the version which the table is of adds to it; any other start replaces it."""
    storage = LocalStorage(tmp_path)
    storage.write(f".bridge/p/schemas/{COLUMNS.hash}.json", b'{"format":1,"columns":' + COLUMNS.to_json() + b"}")
    live = TableState("p/s", COLUMNS.hash, {}, version=7)
    view = Snapshot(1, PipelineState({"bookmarks": {"s": bookmark}}), {"s": live})
    stream, columns = placed(tmp_path, pipeline(tmp_path, load_method="overwrite"), view, **flags).open(schema("s"))
    assert (stream.method, stream.swapped, stream.version) == ("overwrite", extended, 7 if extended else None)
    assert columns == (COLUMNS if extended else None)


@pytest.mark.parametrize("data", [None, b"{", b"{}", b"[1]", b'{"format": 1, "columns": [{"name": "a"}]}'])
def test_lost_columns(tmp_path: Path, data: bytes | None) -> None:
    """Without a table's columns nothing is appended to it."""
    if data is not None:
        LocalStorage(tmp_path).write(".bridge/p/schemas/c0.json", data)
    with pytest.raises(CorruptLake) as caught:
        read_schema(LocalStorage(tmp_path), "p", "c0")
    assert caught.value.hint


def test_owner(tmp_path: Path) -> None:
    """The first pipeline that writes a table owns it, run after run; a second one is refused and told whose it is."""
    for _ in range(2):
        tables = placed(tmp_path, pipeline(tmp_path, "p", "shared"))
        tables.open(schema("s"))
        tables.claim_tables()
    with pytest.raises(LakeError, match="belongs to another pipeline folder=shared/s pipeline=p stream=s") as caught:
        placed(tmp_path, pipeline(tmp_path, "q", "shared")).open(schema("s"))
    assert "another destination.path" in caught.value.hint
    placed(tmp_path, pipeline(tmp_path, "q", "other")).open(schema("s"))
    assert orjson.loads((tmp_path / ".bridge/tables/shared/s.json").read_bytes())["pipeline"] == "p"


def test_two_pipelines_at_once(tmp_path: Path) -> None:
    """Of two pipelines that open a table before either has claimed it, the second to claim it is refused."""
    first, second = (placed(tmp_path, pipeline(tmp_path, name, "shared")) for name in "pq")
    first.open(schema("s"))
    second.open(schema("s"))
    first.claim_tables()
    with pytest.raises(LakeError, match="belongs to another pipeline folder=shared/s pipeline=p stream=s"):
        second.claim_tables()
    assert orjson.loads((tmp_path / ".bridge/tables/shared/s.json").read_bytes())["pipeline"] == "p"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}"])
def test_unreadable_owner(tmp_path: Path, data: bytes) -> None:
    """A damaged owner's file never makes a table free to take."""
    LocalStorage(tmp_path).write(".bridge/tables/p/s.json", data)
    with pytest.raises(CorruptLake, match="owner is unreadable") as caught:
        placed(tmp_path).open(schema("s"))
    assert "backup" in caught.value.hint


@pytest.mark.parametrize("known", [True, False])
def test_files_of_others(tmp_path: Path, known: bool) -> None:
    """A table's folder that holds Parquet the log does not know is refused by the file's name, new table or not."""
    (tmp_path / "p/s").mkdir(parents=True)
    for name in ("ours.parquet", "theirs.parquet", "notes.txt"):
        (tmp_path / "p/s" / name).write_bytes(b"")
    files = ("ours.parquet", "theirs.parquet")
    placed(tmp_path, snapshot=Snapshot(1, PipelineState(), {"s": table("p/s", *files)})).open(schema("s"))
    view = Snapshot(1, PipelineState(), {"s": table("p/s", "ours.parquet")}) if known else Snapshot()
    with pytest.raises(LakeError, match=r"files of others folder=p/s file=\w+\.parquet") as caught:
        placed(tmp_path, snapshot=view).open(schema("s"))
    assert "move them away" in caught.value.hint


def test_an_upsert_knows_its_key_and_takes_null_where_the_schema_does(tmp_path: Path) -> None:
    """Executors are told the whole key; its columns are never null but where null is a value of theirs."""
    placement = placed(tmp_path, pipeline(tmp_path, load_method="upsert"))
    part = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    properties = {"id": {"type": "integer"}, "part": part, "at": {"type": ["string", "null"]}}
    message = Schema("s", {"properties": properties}, ["id", "part", "at"], None)
    stream, _ = placement.open(message)
    assert (stream.method, stream.keyed, stream.plan.sweeps) == ("upsert", True, True)
    assert placement.layouts["s"].keys == ("id", "part", "at")
    assert placement.layouts["s"].hard_delete is False
    assert placement.streams.with_schema(message).never_null(message) == ["id"]


def test_an_upsert_without_a_usable_key_is_refused(tmp_path: Path) -> None:
    """No key at all, and one that is a list: both say what to set."""
    placement = placed(tmp_path, pipeline(tmp_path, load_method="upsert"))
    with pytest.raises(SettingsError, match="needs a key") as refused:
        placement.open(Schema("s", {"properties": {"id": {"type": "integer"}}}, [], None))
    assert "key_properties" in (refused.value.hint or "")
    listed = Schema("s", {"properties": {"id": {"type": "array", "items": {"type": "integer"}}}}, ["id"], None)
    placement.open(listed)
    with pytest.raises(SettingsError, match="cannot be a key"):
        placement.check("s", from_singer(listed.schema, ["id"]))


def test_full_reloads_of_an_upsert_replace_and_keep_its_key(tmp_path: Path) -> None:
    """`--full` exchanges the table, each key once; with `--append` the rows are merged into what is there."""
    settings = pipeline(tmp_path, load_method="upsert")
    for append, mode in ((False, "overwrite"), (True, "upsert")):
        stream, _ = placed(tmp_path, settings, full=True, append=append).open(schema("s"))
        assert (stream.method, stream.keyed) == (mode, True)


def test_an_append_only_stream_sweeps_only_where_deletions_are_set(tmp_path: Path) -> None:
    """`hard_delete` unset: ACTIVATE_VERSION is ignored, as nothing is deleted on a guess."""
    for said, sweeps in ((None, False), (True, True), (False, True)):
        settings = pipeline(tmp_path, load_method="append-only")
        destination = settings.destination.model_copy(update={"hard_delete": said})
        stream, _ = placed(tmp_path, settings.model_copy(update={"destination": destination})).open(schema("s"))
        assert (stream.plan.sweeps, stream.keyed) == (sweeps, False)


@pytest.mark.parametrize(
    ("before", "now", "keep"),
    [
        (("id",), [], 'keep partition_by: ["id"]'),
        ((), ["id"], "remove partition_by"),
        (("id", {"column": "at", "granularity": "day"}), ["id"], '"granularity": "day"'),
        (("a", "b"), ["b", "a"], 'keep partition_by: ["a", "b"]'),
    ],
)
def test_partitions_are_kept(tmp_path: Path, before: tuple[Any, ...], now: list[Any], keep: str) -> None:
    """A table with rows keeps its folders, what to run instead is said, and whoever loads it anew may change them."""
    name = "part-0000000001-000001-x.parquet"
    old = structs.replace(table("p/s", name), partition_by=before)
    view = Snapshot(1, PipelineState(), {"s": old})
    settings = overridden(tmp_path, {"s": StreamKeys(partition_by=now)})
    with pytest.raises(SettingsError, match="keeps its partitions") as caught:
        placed(tmp_path, settings, view).open(schema("s"))
    assert keep in caught.value.hint
    assert "run p --full -s s" in caught.value.hint
    same = overridden(tmp_path, {"s": StreamKeys(partition_by=list(before))})
    placed(tmp_path, same, view).open(schema("s"))
    placed(tmp_path, settings, view, full=True).open(schema("s"))
    placed(tmp_path, settings, Snapshot(1, PipelineState(), {"s": structs.replace(old, files={})})).open(schema("s"))
    stage = staged_table(1, partition_by=before)
    with pytest.raises(SettingsError, match="keeps its partitions"):
        placed(tmp_path, settings, Snapshot(1, PipelineState(), {}, {"s": stage})).open(schema("s"))


def test_layout_of_the_settings(tmp_path: Path) -> None:
    """A stream's own layout goes before the destination's, an empty one too, and its columns are looked for."""
    settings = pipeline(tmp_path)
    by_day = {"column": "at", "granularity": "day"}
    destination = settings.destination.model_copy(update={"partition_by": [by_day], "file_size": 7 << 20})
    streams = {"s": StreamKeys(partition_by=[], sort_by=["-id"], file_size=3 << 20)}
    placement = placed(tmp_path, settings.model_copy(update={"destination": destination, "streams": streams}))
    for stream in ("s", "t"):
        placement.open(schema(stream))
    own, other = placement.layouts["s"], placement.layouts["t"]
    assert (own.partition_by, own.sort_by, own.file_size) == ((), ("-id",), 3 << 20)
    assert (other.partition_by, other.sort_by, other.file_size) == ((Partition("at", "day"),), (), 7 << 20)
    columns = TableSchema(pa.schema([("id", pa.int64())]))
    placement.check("s", columns)
    with pytest.raises(SettingsError, match="partition_by names no column"):
        placement.check("t", columns)


def asked(root: Path, *, shared: bool = False, method: str = "append-only", **said: Any) -> Pipeline:
    """A pipeline whose streams say this."""
    made = pipeline(root, load_method=method)
    to = made.destination.model_copy(update={"shared": shared})
    return made.model_copy(update={"destination": to, "streams": {"*": StreamKeys(**said)}})


@pytest.mark.parametrize(
    ("shared", "said", "expected"),
    [
        (False, {}, ("rewrite", "evolve")),
        (False, {"on_type_change": "variant", "schema_policy": "discard"}, ("variant", "discard")),
        (True, {}, ("fail", "evolve")),
        (True, {"on_type_change": "rewrite"}, ("fail", "evolve")),
        (True, {"on_type_change": "variant"}, ("variant", "evolve")),
    ],
)
def test_how_columns_may_change(tmp_path: Path, shared: bool, said: dict[str, Any], expected: tuple[str, str]) -> None:
    """A stream changes as the settings say; files of a shared table are never written anew."""
    stream, _ = placed(tmp_path, asked(tmp_path, shared=shared, **said)).open(schema("s"))
    assert (stream.plan.evolution.on_type_change, stream.plan.evolution.schema_policy) == expected
    # a key of a merged table is never split in two; in a shared one that would rewrite another pipeline's files
    assert stream.plan.evolution.keys == (() if shared else ("id",))


@pytest.mark.parametrize(("policy", "kept"), [("evolve", False), ("freeze", True), ("discard", True)])
def test_a_frozen_table_that_is_overwritten(tmp_path: Path, policy: str, kept: bool) -> None:
    """An overwritten table keeps its columns where it may not change, unless it is loaded with --full."""
    shop = Shop(tmp_path)
    shop.load("s", {"id": INTEGER, "gone": STRING}, [{"id": 0}])
    log = Log(shop.storage, "shop")
    view = Snapshot(1, PipelineState(), {"s": log.snapshot(1).tables["s"]})
    settings = asked(shop.root, method="overwrite", schema_policy=policy).model_copy(update={"name": "shop"})
    _, columns = placed(shop.root, settings, view).open(schema("s"))
    assert (columns is not None) == kept
    _, columns = placed(shop.root, settings, view, full=True).open(schema("s"))
    assert columns is None
