"""`streams/<stream>.json`: true at every commit, mended after a death, and never in the way of a commit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.lake.storage import open_storage
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.operate.verify.check import verify
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import InProcess, wire
from tests.support.shell import Typed

TAP = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
METADATA = [{"breadcrumb": [], "metadata": {"selected": True, "replication-method": "INCREMENTAL"}}]
CATALOG = {"streams": [{"tap_stream_id": "public-a", "stream": "a", "schema": {}, "metadata": METADATA}]}


class Lake:
    """A pipeline whose tap sends what is listed, with a commit at each STATE."""

    def __init__(self, root: Path) -> None:
        self.root, self.storage = root, open_storage(str(root / "lake"))
        self.source: dict[str, Any] = {"tap": [sys.executable, "-c", TAP, str(root / "said")], "discover": "never"}

    def run(self, *numbers: int, fails: bool = False) -> Result:
        """Run with a row and a STATE for each of these numbers."""
        schema = {"properties": {"id": {"type": "integer"}}}
        facts = {"schema": schema, "key_properties": [], "bookmark_properties": ["id"]}
        messages: list[dict[str, Any]] = [{"type": "SCHEMA", "stream": "a"} | facts]
        for n in numbers:
            mark = {"replication_key": "id", "replication_key_value": n}
            messages.append({"type": "RECORD", "stream": "a", "record": {"id": n}})
            messages.append({"type": "STATE", "value": {"bookmarks": {"public-a": mark}}})
        (self.root / "said").write_bytes(wire(*messages) + (b"{" if fails else b""))
        settings = {"name": "p", "source": self.source, "destination": {"bucket": self.storage.uri}}
        pipeline = Pipeline.model_validate(settings | {"commit": {"rows": 1}})
        return Run(pipeline, Request(), self.root / "home").execute()

    @property
    def said(self) -> dict[str, Any]:
        """What the stream's file says of its bookmark, its rows, and the commit that made them."""
        said = json.loads(self.storage.read(".bridge/p/streams/a.json") or b"{}")
        mark = said.get("bookmark") or {}
        return {**said, "bookmark": mark.get("replication_key_value")}

    def facts(self, *names: str) -> list[Any]:
        return [self.said.get(name) for name in names]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr("bridge.load.run.run.Loader", InProcess)
    lake = Lake(tmp_path)
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    lake.source["catalog"] = str(tmp_path / "catalog.json")
    return lake


def test_it_is_true_at_every_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookmark by the stream's id, method by the catalog, commit, run and time of the last one that changed it."""
    seen: list[list[Any]] = []
    follow = StreamFiles.follow

    def look(self: StreamFiles, *views: Any) -> None:
        follow(self, *views)
        seen.append(lake.facts("bookmark", "rows", "commit"))

    monkeypatch.setattr(StreamFiles, "follow", look)
    result = lake.run(1, 2)
    assert result.status == "success"
    assert seen[:2] == [[1, 1, 1], [2, 2, 2]]
    log = Log(lake.storage, "p")
    record = log.record(2)
    assert record
    assert lake.facts("run", "at", "replication_method", "tap_stream_id") == [
        result.run_id,
        record.at,
        "INCREMENTAL",
        "public-a",
    ]


def test_other_writers_keep_the_method(lake: Lake) -> None:
    """A bookmark that is set by hand is there at once, with its commit; without a catalog nobody knows the method."""
    lake.run(1)
    StateStore(lake.storage.uri, "p").set("public-a", {"replication_key": "id", "replication_key_value": 7})
    assert lake.facts("bookmark", "commit", "replication_method") == [7, 2, "INCREMENTAL"]
    assert verify(lake.storage, "p").findings == []
    (lake.root / "lake/.bridge/p/streams/a.json").unlink()
    del lake.source["catalog"]
    assert lake.run(9).status == "success"
    assert lake.facts("rows", "replication_method") == [2, None]


def test_the_method_that_a_tap_without_a_catalog_declares(lake: Lake, typed: Typed) -> None:
    """A tap that gets no catalog is asked for it: the stream's file and `state list` have the answer."""
    (lake.root / "tap").write_text(
        'case "$*" in *--help*) echo "[--discover]";; *--discover*) cat "$1/catalog.json";; *) cat "$1/said";; esac'
    )
    (lake.root / "catalog.json").write_text(json.dumps({"streams": CATALOG["streams"]}))
    lake.source = {"tap": ["sh", str(lake.root / "tap"), str(lake.root)]}
    assert lake.run(1).status == "success"
    assert lake.facts("bookmark", "tap_stream_id", "replication_method") == [1, "public-a", "INCREMENTAL"]
    assert typed("state list --to lake --name p --json").json[0]["replication_method"] == "INCREMENTAL"
    assert "INCREMENTAL" in typed("state list --to lake --name p").out


def test_a_death_before_it_is_written_is_mended(lake: Lake) -> None:
    """The next opening after a run that did not close writes what is not true."""
    lake.run(1, 2)
    true = lake.said
    (lake.root / "lake/.bridge/p/streams/a.json").write_text(json.dumps(true | {"rows": 1, "bookmark": None}))
    with pytest.raises(KeyboardInterrupt), open_pipeline(lake.storage, "p"):
        raise KeyboardInterrupt
    with open_pipeline(lake.storage, "p"):
        assert lake.said == true


def test_it_never_fails_a_commit(lake: Lake) -> None:
    """Where it cannot be written the rows are committed all the same, and the next opening writes it."""
    lake.run(1)
    folder = lake.root / "lake/.bridge/p/streams"
    folder.rename(lake.root / "aside")
    folder.write_text("in the way")
    result = lake.run(2, 3)
    assert (result.status, result.commits) == ("success", 2)
    folder.unlink()
    (lake.root / "aside").rename(folder)
    with open_pipeline(lake.storage, "p"):
        assert lake.facts("bookmark", "rows") == [3, 3]
