"""`target-bridge`: the Singer SDK's own suite with the rows it does not look at, settings, endings, stream maps."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from singer_sdk.testing import get_target_test_class
from singer_sdk.testing.runners import TargetTestRunner
from target_bridge import TargetBridge
from target_bridge.origin import given_state, meltano_state
from target_bridge.settings import CONFIG_JSONSCHEMA, pipeline_of

from bridge.cli import cli
from bridge.errors import SettingsError
from bridge.lake.run_status import last_run
from bridge.lake.storage import open_storage
from bridge.load.tap.stdin import Start
from tests.support.hazards import DATA
from tests.support.pipe import wire
from tests.support.targets import lake_of, rows_of, target, without_spark

EXPECTED: dict[str, Any] = json.loads((DATA / "singer_sdk_streams.json").read_text())
"""What `run` makes of the SDK's files, which have no catalog: streams with a key are merged by it."""
_METRICS = [(1, 1), (2, 2), (1, 10), (2, 20), (1, 100)]
APPENDED = {"test_duplicate_records": [{"id": key, "metric": metric} for key, metric in _METRICS]}
"""Where the target, whose default is append-only, has other rows."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the suite leaves its files open
class TestStandard(get_target_test_class(TargetBridge, config={"bucket": "."})):  # type: ignore[misc]
    """The Singer SDK's suite, and after each of its tests the rows and values that its file has to lead to."""

    @pytest.fixture(params=["in process", pytest.param("spark", marks=pytest.mark.slow)])
    def runner(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TargetTestRunner]:
        runner = TargetTestRunner(TargetBridge, config={"bucket": str(tmp_path / "lake")})
        with without_spark(tmp_path) if request.param == "in process" else nullcontext():
            yield runner
        expected = EXPECTED.get(request.node.originalname.removeprefix("test_target_"))
        if expected is None:
            return
        if runner.stdout is None:
            assert not lake_of(tmp_path).tables
            return
        for stream, merged in expected["rows"].items():
            found = rows_of(tmp_path, stream)
            plain = [{name: row[name] for name in row if not name.startswith("_sdc_")} for row in merged]
            rows = APPENDED.get(stream, plain)
            columns = sorted({name for row in (*found, *rows) for name in row})
            assert _texts(found, columns) == _texts(rows, columns)
        printed = [json.loads(line) for line in runner.stdout.splitlines()]
        assert printed[-1:] == ([expected["state"]] if expected["state"] else [])

    def test_every_file_of_the_suite_was_compared(self) -> None:
        tests = {name.removeprefix("test_target_") for name in dir(self) if name.startswith("test_target_")}
        assert len(tests) >= 16
        assert tests - {"cli_prints"} <= EXPECTED.keys()


def _texts(rows: list[dict[str, Any]], columns: list[str]) -> list[str]:
    return sorted(json.dumps([row.get(name) for name in columns], sort_keys=True) for row in rows)


def schema(stream: str = "t", **more: Any) -> dict[str, Any]:
    columns = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
    said = {"type": "SCHEMA", "stream": stream, "schema": {"properties": columns}, "key_properties": ["id"]}
    return said | {"bookmark_properties": ["id"]} | more


def record(number: int, stream: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": {"id": number, "name": f"n{number}"} | more}


def state(number: int, stream: str = "t") -> dict[str, Any]:
    said = {"replication_key": "id", "replication_key_value": number}
    return {"type": "STATE", "value": {"bookmarks": {stream: said}}}


def ids(folder: Path, stream: str = "t") -> list[int]:
    return sorted(row["id"] for row in rows_of(folder, stream))


def test_rows_and_states(tmp_path: Path) -> None:
    done = target(tmp_path, wire(schema(), record(1), state(1), record(2), state(2), record(3)))
    assert (done.code, ids(tmp_path)) == (0, [1, 2, 3])
    assert done.states == [state(2)["value"]]
    assert done.out.count("\n") == 1


def test_every_row_with_default_settings(tmp_path: Path) -> None:
    """25,000 of them: of a batch size nothing is known here."""
    lines = wire(schema(), *map(record, range(25_000)), state(24_999))
    assert target(tmp_path, lines).code == 0
    assert ids(tmp_path) == list(range(25_000))


def test_a_schema_that_changes_in_the_middle(tmp_path: Path) -> None:
    wider = schema()
    wider["schema"] = {"properties": wider["schema"]["properties"] | {"more": {"type": "number"}}}
    done = target(tmp_path, wire(schema(), record(1), record(2), wider, record(3, more=1.5), schema(), record(4)))
    assert done.code == 0
    assert [(row["id"], row.get("more")) for row in sorted(rows_of(tmp_path, "t"), key=lambda row: row["id"])] == [
        (1, None),
        (2, None),
        (3, 1.5),
        (4, None),
    ]


def test_no_input_is_no_error(tmp_path: Path) -> None:
    assert target(tmp_path, b"") == target(tmp_path, b"\n\n")
    assert target(tmp_path, b"").code == 0
    assert lake_of(tmp_path).n == 0


def test_an_end_in_the_middle_of_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the last STATE covers is kept, and no STATE goes beyond it."""
    text = wire(schema(), record(1), state(1), record(2), state(2), record(3))[:-10]
    done = target(tmp_path, text)
    assert (done.code, done.states, ids(tmp_path)) == (1, [state(2)["value"]], [1, 2])
    assert "in the middle of a line" in caplog.text


def test_its_summary_says_how_bookmarks_moved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a bookmark with a part for each context, the value that moved; and how long the run took."""
    caplog.set_level("INFO")

    def parts(**values: int) -> dict[str, Any]:
        marks = [{"context": {"repo": repo}, "replication_key_value": value} for repo, value in values.items()]
        return {"type": "STATE", "value": {"bookmarks": {"t": {"partitions": marks}}}}

    assert target(tmp_path, wire(schema(), record(1), parts(a=1, b=1))).code == 0
    assert "t (repo b): from the beginning to 1" in caplog.messages
    caplog.clear()
    (tmp_path / "start.json").write_text(json.dumps(parts(a=1, b=1)["value"]))
    again = wire(schema(), record(2), parts(a=1, b=2))
    assert target(tmp_path, again, start_state=str(tmp_path / "start.json")).code == 0
    assert [text for text in caplog.messages if ": from " in text] == ["t (repo b): from 1 to 2"]
    assert any(re.fullmatch(r"Run \S+: success, 1 commits, [\d.]+ m?s", text) for text in caplog.messages)


def test_a_record_that_cannot_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It fails, and what was printed covers rows that are there; quarantined, it is kept and the rest goes on."""
    lines = wire(schema(), record(1), state(1), {"type": "RECORD", "stream": "t", "record": {"id": "x"}}, state(9))
    done = target(tmp_path, lines)
    assert done.code == 1
    assert state(9)["value"] not in done.states
    assert "a record cannot be stored" in caplog.text
    again = target(tmp_path, lines, on_reject="quarantine", start_state=str(tmp_path / "none.json"))
    assert (again.code, again.states[-1], ids(tmp_path)) == (0, state(9)["value"], [1])
    assert sum(file.lines for file in lake_of(tmp_path).rejects.values()) == 1


def test_whole_schemas(tmp_path: Path) -> None:
    said = schema()
    said["schema"]["properties"]["name"] = {"type": "string", "maxLength": 2}
    lines = wire(said, record(1), record(100), state(100))
    assert target(tmp_path, lines).code == 0
    (tmp_path / "full").mkdir()
    assert target(tmp_path / "full", lines, validate_records=True).code == 1


def test_commits_by_rows(tmp_path: Path) -> None:
    messages = [message for number in range(1, 7) for message in (record(number), state(number))]
    done = target(tmp_path, wire(schema(), *messages), batch_size_rows=2)
    said = [said["bookmarks"]["t"]["replication_key_value"] for said in done.states]
    assert said == [2, 4, 6]


def test_versions_are_activated_or_not(tmp_path: Path) -> None:
    def full(version: int, *numbers: int) -> bytes:
        rows = [record(number) | {"version": version} for number in numbers]
        return wire(schema(), *rows, {"type": "ACTIVATE_VERSION", "stream": "t", "version": version})

    for on in (True, False):
        folder = tmp_path / str(on)
        folder.mkdir()
        given = {"hard_delete": True, "process_activate_version_messages": on}
        for version, numbers in ((1, (1, 2)), (2, (3,))):
            assert target(folder, full(version, *numbers), **given).code == 0
        assert ids(folder) == ([3] if on else [1, 2, 3])


def test_stream_maps_and_flattening(tmp_path: Path) -> None:
    """The SDK's mapper decides: renamed, left out, filtered, computed, flattened."""
    deep = schema("deep")
    deep["schema"]["properties"]["at"] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    messages = [schema(), record(1), record(2), deep, record(1, "deep", at={"x": 5}), schema("gone"), record(1, "gone")]
    maps = {"t": {"__alias__": "people", "__filter__": "id > 1", "loud": "name.upper()"}, "gone": None}
    done = target(
        tmp_path, wire(*messages, state(2)), stream_maps=maps, flattening_enabled=True, flattening_max_depth=1
    )
    assert (done.code, done.states) == (0, [state(2)["value"]])
    assert rows_of(tmp_path, "people") == [{"id": 2, "name": "n2", "loud": "N2"}]
    assert rows_of(tmp_path, "deep") == [{"id": 1, "name": "n1", "at__x": 5}]
    assert lake_of(tmp_path).tables.keys() == {"people", "deep"}


def test_a_batch_cannot_be_mapped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batch = {"type": "BATCH", "stream": "t", "encoding": {"format": "jsonl", "compression": "none"}, "manifest": []}
    lines = wire(schema(), batch)
    assert target(tmp_path, lines, stream_maps={"t": {"name": None}}).code == 1
    assert "the rows of a BATCH cannot be mapped" in caplog.text
    assert target(tmp_path, lines, stream_maps={"other": {"name": None}}).code == 0
    assert target(tmp_path, lines, stream_maps={"t": None}).code == 0


def test_the_first_message_says_where_the_tap_began(tmp_path: Path) -> None:
    """A tap of the SDK echoes its STATE; so a second attempt is known as one."""
    target(tmp_path, wire(schema(), record(1), state(1)))
    second = wire(state(1), schema(), record(2), state(2))
    target(tmp_path, second)
    done = target(tmp_path, second)
    assert (done.states, ids(tmp_path)) == ([state(2)["value"]], [1, 2])


def test_a_setting_says_where_the_tap_began(tmp_path: Path) -> None:
    target(tmp_path, wire(schema(), record(1), state(1)))
    (tmp_path / "state.json").write_bytes(orjson.dumps(state(1)["value"]))
    second = wire(schema(), record(2), state(2))
    for _ in range(2):
        assert target(tmp_path, second, start_state=str(tmp_path / "state.json")).code == 0
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "bucket: missing setting"),
        ({"bucket": "gs://x"}, "bucket: "),
        ({"bucket": "x", "destination_path": "y"}, "destination_path is another name of bucket"),
        ({"bucket": "x", "pipeline": "a b"}, "pipeline: "),
        ({"bucket": "x", "path": "../x"}, "path: "),
        ({"bucket": "x", "file_size": "huge"}, "file_size: "),
        ({"bucket": "x", "batch_size_rows": 0}, "batch_size_rows: "),
        ({"bucket": "x", "aws_region": "eu"}, "aws_*: these keys are for an s3:// bucket"),
        ({"bucket": "x", "streams": {"t": {"lod_method": "upsert"}}}, "streams.t.lod_method: unknown key"),
        ({"bucket": "x", "streams": {"t": {"lookback": "3d"}}}, "a target does not choose"),
        ({"bucket": "x", "spark": {"conf": {"a": 1}}}, "spark.conf.a: must be text"),
    ],
)
def test_wrong_settings_are_named_as_the_target_calls_them(config: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        pipeline_of(config, {})
    assert text in raised.value.message
    assert raised.value.hint


def test_settings_become_those_of_a_pipeline(tmp_path: Path) -> None:
    config = {
        "destination_path": str(tmp_path),
        "compression_method": "gzip",
        "partition_cols": ["day"],
        "batch_wait_limit_seconds": 30,
        "batch_size_rows": 10,
        "max_rejects": 5,
        "on_reject": "quarantine",
        "validate_records": True,
        "streams": {"t*": {"load_method": "upsert"}},
        "path": "",
    }
    environ = {"MELTANO_ENVIRONMENT": "prod", "MELTANO_EXTRACTOR_NAME": "tap-x"}
    pipeline = pipeline_of(config, environ)
    assert pipeline.name == "prod.tap-x"
    assert (pipeline.destination.bucket, pipeline.table_root) == (str(tmp_path), "prod.tap-x")
    assert (pipeline.destination.compression, pipeline.destination.partition_by) == ("gzip", ["day"])
    assert (pipeline.commit.every.total_seconds(), pipeline.commit.rows) == (30, 10)
    assert pipeline.rejects.model_dump() == {"on_reject": "quarantine", "max": 5, "validate": "full"}
    assert pipeline.load_method("tables") == "upsert"
    assert pipeline_of({"bucket": "x", "pipeline": ".tap-x"}, {}).name == "tap-x"


def test_secrets_are_marked_and_hidden() -> None:
    secret = {name for name, said in CONFIG_JSONSCHEMA["properties"].items() if said.get("secret")}
    assert secret == {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "mask_key",
        "notify",
        "openlineage",
    }
    notify = [{"url": "json://alerts.example.com/t0psecret-token"}]
    pipeline = pipeline_of({"bucket": "s3://lake", "aws_secret_access_key": "hush-hush", "notify": notify}, {})
    assert "hush-hush" in pipeline.secrets
    assert any("t0psecret-token" in secret for secret in pipeline.secrets)
    assert "hush-hush" not in repr(pipeline)
    assert "t0psecret" not in repr(pipeline)


def test_an_unknown_setting_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert target(tmp_path, b"", bukket="x").code == 1
    assert 'bukket: did you mean "bucket"?' in caplog.messages  # its text may be JSON: the SDK's choice


def test_what_meltano_gave_to_the_tap(tmp_path: Path) -> None:
    """Its file is believed if it is older than our own config; without one the tap began without a STATE."""
    environ = {
        "MELTANO_SYS_DIR_ROOT": str(tmp_path),
        "MELTANO_EXTRACTOR_NAME": "tap-x",
        "MELTANO_LOADER_NAME": "target-bridge",
    }
    folder = tmp_path / "run" / "tap-x"
    folder.mkdir(parents=True)
    now = time.time_ns() + 1_000_000_000
    assert meltano_state(environ, now) == Start(None)
    (folder / "state.json").write_text('{"bookmarks": {"t": {"x": 1.10}}}')
    found = meltano_state(environ, now)
    assert found and str(found.state["bookmarks"]["t"]["x"]) == "1.10"
    os.utime(folder / "state.json", ns=(now + 1, now + 1))
    assert meltano_state(environ, now) is None
    assert meltano_state(environ | {"MELTANO_LOADER_NAME": ""}, now + 2) is None
    assert meltano_state(environ, None) is None


def test_a_start_that_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(SettingsError, match="not JSON"):
        given_state(tmp_path / "state.json")
    with pytest.raises(SettingsError, match="cannot be read"):
        given_state(tmp_path)
    (tmp_path / "state.json").write_text("")
    assert given_state(tmp_path / "state.json") == given_state(tmp_path / "none.json") == Start(None)


def test_a_rollback_says_how_to_set_back_the_state_of_the_other_program(tmp_path: Path) -> None:
    """So does `state set`; a run from the newer STATE is refused, or says what is missing."""
    start, chosen = {"start_state": str(tmp_path / "state.json")}, ["--to", str(tmp_path / "lake"), "--name", "shop"]
    for number in (1, 2, 3):
        typed = target(tmp_path, _numbered(number), pipeline="shop", **start)
        (tmp_path / "state.json").write_text(json.dumps(typed.states[-1]))
    rolled = CliRunner().invoke(cli, ["rollback", "1", *chosen, "--yes"])
    assert rolled.exit_code == 0
    command = f"singer-bridge state get {' '.join(chosen)}"
    assert "another program starts the tap" in rolled.stderr
    assert f"{command} > state.json" in rolled.stderr
    assert target(tmp_path, _numbered(4), pipeline="shop", **start).code == 2
    got = CliRunner().invoke(cli, command.split()[1:])
    assert json.loads(got.stdout) == _numbered_state(1)
    accepted = target(tmp_path, _numbered(4), pipeline="shop", on_missing_rows="warn", **start)
    assert accepted.code == 0
    assert len(rows_of(tmp_path, "t", "shop")) == 2
    record = last_run(open_storage(str(tmp_path / "lake")), "shop")
    assert record
    assert [each["kind"] for each in record.stored["differences"]] == ["missing_rows"]
    given = json.dumps(_numbered_state(1))
    edited = CliRunner().invoke(cli, ["state", "set", *chosen, given])
    assert edited.exit_code == 0
    assert "another program starts the tap" in edited.stderr


def _numbered_state(number: int) -> Any:
    return {"bookmarks": {"t": {"replication_key": "id", "replication_key_value": number}}}


def _numbered(number: int) -> bytes:
    schema = {"properties": {"id": {"type": "integer"}}}
    opening = {"type": "SCHEMA", "stream": "t", "schema": schema, "key_properties": ["id"]}
    row = {"type": "RECORD", "stream": "t", "record": {"id": number}}
    return wire(opening, row, {"type": "STATE", "value": _numbered_state(number)})
