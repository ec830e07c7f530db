"""No input crashes a run: what cannot be used is an error in words, and what is whole is committed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import InProcess, Pipe, wire

LONE = "\ud800"
"""Half of a character, which JSON can say and UTF-8 cannot."""
TAP = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
ROW = {"type": "RECORD", "stream": "s", "record": {"id": 1}}
BATCH: dict[str, Any] = {"type": "BATCH", "stream": "s", "encoding": {"format": "jsonl"}, "manifest": []}


def schema(properties: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """The SCHEMA of `s`."""
    return {"type": "SCHEMA", "stream": "s", "schema": {"properties": properties}, "key_properties": keys}


ID = schema({"id": {"type": "integer"}}, ["id"])


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.load.run.run.Loader", InProcess)


def run(root: Path, *messages: dict[str, Any], **settings: Any) -> Result:
    """A run of the whole product, but for Spark, with a tap that says this."""
    (root / "said").write_text("".join(json.dumps(message) + "\n" for message in messages))
    source = {"tap": [sys.executable, "-c", TAP, str(root / "said")], "discover": "never"}
    said = {"name": "p", "source": source, "destination": {"bucket": str(root / "lake")}} | settings
    result = Run(Pipeline.model_validate(said), Request(), root / "home").execute()
    assert "".join([*result.warnings, *((result.error.message, result.error.hint) if result.error else ())]).encode()
    return result


REFUSED = {
    "property": (schema({LONE: {"type": 5}}, []), ROW),
    "key": (schema({"id": {"type": "integer"}}, [LONE]), ROW),
    "reference": (schema({"id": {"$ref": f"#/{LONE}"}}, []), ROW),
    "encoding": (ID, BATCH | {"encoding": {"format": LONE}, "manifest": ["file:///x"]}),
}


@pytest.mark.parametrize("messages", REFUSED.values(), ids=REFUSED)
def test_half_a_character_where_it_cannot_be(tmp_path: Path, messages: Any) -> None:
    """The error shows it as JSON writes it."""
    result = run(tmp_path, *messages)
    assert result.status == "failed"
    assert result.error
    assert "\\ud800" in result.error.message + result.error.hint


def test_half_a_character_in_an_unknown_message(tmp_path: Path) -> None:
    """The rows are committed, and the run says what it did not understand."""
    result = run(tmp_path, ID, ROW, {"type": LONE, "stream": "s"})
    assert (result.status, result.error) == ("success", None)
    assert result.streams["s"].committed == 1


def test_half_a_character_in_a_bookmark(tmp_path: Path) -> None:
    """A bookmark that lookback cannot shift is refused, whatever it holds."""
    state = {"bookmarks": {"s": {"replication_key": "id", "replication_key_value": LONE}}}
    run(tmp_path, ID, ROW, {"type": "STATE", "value": state})
    result = run(tmp_path, ID, ROW, streams={"s": {"lookback": "1d"}})
    assert result.error
    assert "\\ud800" in result.error.message


@pytest.mark.parametrize("verb", ["state list", "state get"])
def test_half_a_character_on_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """What is shown of it is what JSON writes."""
    run(tmp_path, ID, ROW, {"type": "STATE", "value": {"bookmarks": {"s": LONE}}})
    with pytest.raises(SystemExit) as ended:
        main([*verb.split(), "--name", "p", "--to", str(tmp_path / "lake")])
    assert ended.value.code == 0
    assert "\\ud800" in capsys.readouterr().out


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    """It is another's, and named."""
    run(tmp_path, ID, ROW)
    (tmp_path / "lake/p/s" / os.fsdecode(b"caf\xe9.parquet")).write_bytes(b"")
    result = run(tmp_path, ID, ROW)
    assert result.error
    assert result.error.message.endswith("caf\\udce9.parquet")


@pytest.mark.parametrize("bucket", [True, False])
def test_a_folder_whose_name_is_not_utf8(tmp_path: Path, bucket: bool) -> None:
    """It is refused before anything is written there."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    place = odd / "lake" if bucket else tmp_path / "lake"
    result = run(tmp_path if bucket else odd, ID, ROW, destination={"bucket": str(place)})
    assert result.error
    assert (result.error.exit_code, "not UTF-8" in result.error.message) == (2, True)
    assert not place.exists()


@pytest.mark.parametrize("depth", [32, 33, 120])
@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_a_deep_schema(tmp_path: Path, depth: int, lists: bool, form: str) -> None:
    """Objects and lists of any depth are stored, as JSON text from the 33rd level on."""
    column, value, stored = {"type": "integer"}, 1, 1
    for level in range(depth, 0, -1):
        column = {"type": "array", "items": column} if lists else {"type": "object", "properties": {"a": column}}
        value = [value] if lists else {"a": value}
        stored = json.dumps(value, separators=(",", ":")) if level > 32 else [stored] if lists else {"a": stored}
    said = schema({"id": {"type": "integer"}, "o": column}, ["id"])
    for _ in range(2):
        found = Pipe(tmp_path).load(
            wire(said, ROW, ROW | {"record": {"id": 2, "o": value}}), load_method="upsert", format=form
        )
        assert found.error is None
    assert [row["o"] for row in found.rows("s")] == [None, stored]


def test_a_schema_too_deep_to_be_read(tmp_path: Path) -> None:
    """It is refused in words."""
    column: dict[str, Any] = {"type": "integer"}
    for _ in range(190):
        column = {"type": "object", "properties": {"a": column}}
    result = run(tmp_path, schema({"o": column}, []), ROW)
    assert result.error
    assert result.error.message.startswith("a SCHEMA cannot be read")


@pytest.mark.parametrize("file", ["\0", "file:///x\0y", "file:///%00", "file:///" + "x" * 5000])
def test_a_batch_whose_file_cannot_be(tmp_path: Path, file: str) -> None:
    """A name that no file can have is an error of the tap."""
    result = run(tmp_path, ID, BATCH | {"manifest": [file]})
    assert result.error
    assert result.error.message.startswith("a file of a BATCH ")


@pytest.mark.parametrize(
    "name", ["\x1fversion", "\x1fseq", "\x1forder", "\x1frow", "\x1fabsent", "\x1fhome", "\x1fpartial"]
)
@pytest.mark.parametrize("method", ["upsert", "append-only"])
def test_a_column_named_as_one_of_our_own(tmp_path: Path, name: str, method: str) -> None:
    """It is merged and read like any other."""
    said = schema({"id": {"type": "integer"}, name: {"type": "integer"}}, ["id"])
    rows = [{"type": "RECORD", "stream": "s", "record": {"id": n, name: 7 + n}} for n in (1, 2)]
    for _ in range(2):
        found = Pipe(tmp_path).load(wire(said, *rows), load_method=method)
        assert found.error is None
    column = name.replace("\x1f", "_")
    assert {(row["id"], row[column]) for row in found.rows("s")} == {(1, 8), (2, 9)}
    assert len(found.rows("s")) == (2 if method == "upsert" else 4)
