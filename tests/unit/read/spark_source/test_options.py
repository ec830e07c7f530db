"""Spark's options, and what a user without Python data sources is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.read.spark_source.options import read_options
from bridge.read.spark_source.place import explained
from tests.support.spark_source import frame, rows_of, source
from tests.support.tables import INTEGER, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.load("t", {"id": INTEGER}, [{"id": 1}])
    return made


def test_any_case(shop: Shop, tmp_path: Path) -> None:
    """Spark's options are the same in any case; a secret is in no repr."""
    asked = read_options(
        {"PATH": str(shop.root), "Table": "t", "CHANGES": "TRUE", "startingcommit": "1", "MAXCOMMITSPERTRIGGER": "3"}
        | {"AWS_Access_Key_Id": "k-1", "aws_secret_access_key": "s-2", "maxPartitionBytes": "1MiB", "keys": "a, b"}
    )
    assert (asked.table, asked.changes, asked.first, asked.most_commits) == ("t", True, 1, 3)
    assert (asked.partition_bytes, asked.keys, asked.place.pipeline) == (1 << 20, ("a", "b"), "shop")
    assert asked.place.environment == {"AWS_ACCESS_KEY_ID": "k-1", "AWS_SECRET_ACCESS_KEY": "s-2"}
    assert "s-2" not in repr(asked)
    assert "k-1" not in repr(asked)


WRONG = [
    ({}, "table: which one", "set one of"),
    ({"table": "t", "view": "t"}, "table: which one", "set one of"),
    ({"table": "t", "commits": "1"}, "commits: no such option", 'did you mean "commit"'),
    ({"table": "t", "zzz": "1"}, "zzz: no such option", "there are: path, pipeline"),
    ({"table": "t", "commit": "x"}, "commit: not a whole number", "commits list"),
    ({"table": "t", "changes": "yes"}, "changes: neither true nor false", '"true"'),
    ({"table": "t", "changes": "true", "from": "0"}, "from: not a whole number from 1 on", "commits list"),
    ({"table": "t", "changes": "true", "commit": "1"}, "commit: not of a change feed", "remove it"),
    ({"table": "t", "changes": "true", "from": "1", "startingCommit": "1"}, "`from` is set as well", "remove one"),
    ({"table": "t", "maxPartitionBytes": "1MB"}, "maxPartitionBytes: not a size", "write MiB"),
    ({"table": "t", "maxPartitionBytes": "0"}, "maxPartitionBytes: must be more", "32MiB"),
    ({"table": "t", "columns": " , "}, "columns: names none", "leave it out"),
    ({"table": "t", "columns": "[id"}, "columns: not a JSON list", '["id", "name"]'),
    ({"table": "t", "pipeline": "shp"}, "no such pipeline in this bucket", 'did you mean "shop"'),
    ({"table": "t", "path": "s3a://lake"}, "another tool's word", "docs/reference.md"),
    ({"table": "t", "path": "s3://lake", "s3.endpoint_url": "nonsense"}, r"s3\.endpoint_url", "docs/reference.md"),
]


@pytest.mark.parametrize(("options", "message", "hint"), WRONG, ids=[one[1] for one in WRONG])
def test_a_wrong_option_is_named(options: dict[str, str], message: str, hint: str, shop: Shop, tmp_path: Path) -> None:
    """With what to write instead, in the text itself: Spark shows no more of an error."""
    with pytest.raises(SettingsError, match=message) as raised:
        source(tmp_path, **options).schema()
    assert hint in str(raised.value)


def test_which_lake_and_which_pipeline(shop: Shop, tmp_path: Path) -> None:
    """No path; two pipelines and none of them named; an option of streams; a frame that is written."""
    with pytest.raises(SettingsError, match=r"(?s)path: which lake.*\.load"), explained({}):
        read_options({"table": "t"})
    (shop.root / ".bridge/other/commits").mkdir(parents=True)
    (shop.root / ".bridge/other/lease.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"(?s)pipeline: which one.*other, shop"):
        source(tmp_path, table="t").schema()
    assert frame(tmp_path, table="t", pipeline="shop") == [{"id": 1}]
    made = source(tmp_path, table="t", pipeline="shop", changes="true", maxCommitsPerTrigger=1)
    with pytest.raises(SettingsError, match="only of a stream"):
        made.reader(made.schema())
    with pytest.raises(SettingsError, match="only reads a lake"):
        made.writer(made.schema(), overwrite=False)


def test_keys_are_of_one_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of Spark serves many readers: what one brings is gone after it, and what was before is back."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the machine's")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    mine = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "secret"}
    with pytest.raises(SettingsError, match=r"^wrong\n  do this$"), explained(mine):
        assert {name: os.environ[name] for name in mine} == mine
        raise SettingsError("wrong", hint="do this")
    assert os.environ["AWS_ACCESS_KEY_ID"] == "the machine's"
    assert "AWS_SECRET_ACCESS_KEY" not in os.environ


def test_no_rows(shop: Shop, tmp_path: Path) -> None:
    """Spark makes one task even of no parts: it reads nothing."""
    shop.load("t", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    for table in ("none", "other"):
        shop.load(table, {"id": INTEGER}, [])
    from pyspark.sql.datasource import InputPartition

    assert frame(tmp_path, table="none") == frame(tmp_path, table="none", changes="true") == []
    for more in ({"table": "t", "changes": "true", "from": "5"}, {"table": "t", "changes": "true", "from": "3"}):
        made = source(tmp_path, **more)
        reader = made.reader(made.schema())
        assert reader.partitions() == []
        assert rows_of([list(reader.read(InputPartition(None)))]) == []
