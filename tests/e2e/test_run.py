"""`singer-bridge run` as a user runs it: real taps, real Spark, rows read back by DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project, stream
from tests.support.shell import children_seconds

IN_PROCESS = pytest.mark.usefixtures("in_process")
"""A test about rows and bookmarks. The others are about processes, or about what a first run prints."""


def test_a_second_run_loads_only_what_is_new(project: Project) -> None:
    """Each record once over two runs, the bookmark in the bucket, and stdout nothing but one JSON object."""
    first = project.run({"seed": 1, "streams": [stream(records=1000), stream("orders", 500)]})
    assert first.code == 0, first.err
    assert first.json["status"] == "success"
    assert first.json["state_before"] is None
    assert first.json["streams"]["users"]["records"] == 1000
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 1000
    second = project.run({"seed": 1, "streams": [stream(records=1200), stream("orders", 500)]})
    assert second.code == 0, second.err
    assert second.json["streams"]["users"]["records"] == 200
    assert second.json["streams"]["orders"]["records"] == 0
    assert second.json["state_before"] == first.json["state"]
    assert project.ids("users") == list(range(1, 1201))
    assert project.ids("orders") == list(range(1, 501))
    assert not list(project.lake.glob(".bridge/**/*.parquet"))


def test_a_run_without_anything_new_starts_no_jvm_and_makes_no_commit(project: Project) -> None:
    """A tap that says nothing costs its own time and no more: no JVM, no commit, success, and what to try."""
    with children_seconds() as seconds:
        done = project.run({"seed": 1, "no_output": True, "streams": [stream()]})
    assert done.code == 0, done.err
    assert done.json["commits"] == 0
    assert "singer-bridge discover smoke" in "".join(done.json["warnings"])
    assert seconds() < 4
    assert not list(project.lake.glob(".bridge/smoke/logs/*.spark.log"))


@IN_PROCESS
@pytest.mark.slow
def test_full_table_streams_are_replaced_and_incremental_ones_appended(project: Project) -> None:
    """`auto` follows the catalog's replication method, and the second run leaves one generation of the full table."""
    config = {
        "seed": 1,
        "state": {"every": 100},
        "streams": [stream("full", 300, replication_method="FULL_TABLE"), stream(records=300)],
    }
    (project.folder / "tap.json").write_text(json.dumps(config))
    asked = ["discover", "--tap", project_tap(), "--tap-config", "tap.json", "--to", "lake", "--name", "smoke"]
    assert project.command(*asked).code == 0
    for _ in range(2):
        done = project.run(config)
        assert done.code == 0, done.err
    assert done.json["streams"]["full"]["load_method"] == "overwrite"
    assert "FULL_TABLE" in done.json["streams"]["full"]["reason"]
    assert project.ids("full") == list(range(1, 301))
    assert project.ids("users") == list(range(1, 301))
    shrunk = config | {"streams": [stream("full", 40, replication_method="FULL_TABLE"), stream(records=300)]}
    done = project.run(shrunk)
    assert project.ids("full") == list(range(1, 41))
    assert any("it had 300" in warning for warning in done.json["warnings"])


def project_tap() -> str:
    from tests.e2e.conftest import TAP

    return TAP


@IN_PROCESS
def test_full_replaces_the_tables_in_one_commit(project: Project) -> None:
    """`--full` shows the new table and the new STATE together; if it fails, the old table and STATE stand."""
    config = {"seed": 1, "state": {"every": 10}, "streams": [stream(records=200)]}
    assert project.run(config).code == 0
    before = project.state()
    failed = project.run(config | {"seed": 2, "fail": {"at": 150, "how": "exit"}}, "--full")
    assert failed.code == 1
    assert project.state() == before
    old = project.rows("users", "id, n")
    assert len(old) == 200
    done = project.run(config | {"seed": 2}, "--full")
    assert done.code == 0, done.err
    assert done.json["commits"] == 1
    new = project.rows("users", "id, n")
    assert [row[0] for row in new] == list(range(1, 201))
    assert new != old


@IN_PROCESS
def test_full_is_refused_where_it_would_double_rows(project: Project) -> None:
    """`--full` on explicit append-only needs `--append`; nothing is started."""
    done = project.run({"seed": 1, "streams": [stream()]}, "--load-method", "append-only", "--full")
    assert done.code == 2
    assert "--append" in done.json["error"]["hint"]
    assert not project.lake.exists()


@IN_PROCESS
@pytest.mark.slow
def test_one_stream_alone_keeps_the_others_bookmarks(project: Project) -> None:
    """`-s` loads one stream and overlays only its bookmark."""
    config = {"seed": 1, "streams": [stream("a", 50), stream("b", 50)]}
    assert project.run(config).code == 0
    more = {"seed": 1, "streams": [stream("a", 80), stream("b", 80)]}
    done = project.run(more, "-s", "b")
    assert done.code == 0, done.err
    assert project.ids("a") == list(range(1, 51))
    assert project.ids("b") == list(range(1, 81))
    bookmarks = project.state()["bookmarks"]
    assert (bookmarks["a"]["replication_key_value"], bookmarks["b"]["replication_key_value"]) == (50, 80)


@IN_PROCESS
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "exit_code=3"),
        pytest.param("signal", "SIGKILL", marks=pytest.mark.slow),
        pytest.param("half_line", "exit_code=1", marks=pytest.mark.slow),
        pytest.param("half_line_ok", "middle of a line", marks=pytest.mark.slow),
    ],
)
def test_a_failing_tap_keeps_what_its_last_state_covers(project: Project, how: str, words: str) -> None:
    """Everything up to the last STATE is committed, nothing after it, and the next run resumes exactly there."""
    config = {"seed": 1, "state": {"every": 100}, "streams": [stream(records=1000)]}
    failed = project.run(config | {"fail": {"at": 555, "how": how}})
    assert failed.code == 1
    assert failed.json["status"] == "failed"
    assert words in failed.json["error"]["message"]
    assert project.ids("users") == list(range(1, 501))
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 500
    assert project.run(config).code == 0
    assert project.ids("users") == list(range(1, 1001))


@IN_PROCESS
@pytest.mark.slow
def test_rows_that_would_come_again_are_held(project: Project) -> None:
    """`progress_markers` say "not resumable": a failing run stores none of the stream's rows, a clean one each once."""
    config = {"seed": 1, "state": {"every": 50}, "streams": [stream(records=400, progress_markers=True)]}
    failed = project.run(config | {"fail": {"at": 333, "how": "exit"}})
    assert failed.code == 1
    assert project.ids("users") == []
    assert project.run(config).code == 0
    assert project.ids("users") == list(range(1, 401))


@pytest.mark.slow
def test_a_loud_and_chatty_tap_loads(project: Project) -> None:
    """10 MB on stderr before the first record and a STATE a record: no dead-lock, no loss, the log is kept."""
    config = {"seed": 1, "stderr_bytes": 10 << 20, "state": {"every": 1}, "streams": [stream(records=5000)]}
    done = project.run(config)
    assert done.code == 0, done.err
    assert project.ids("users") == list(range(1, 5001))
    logs = project.command("runs", "show", "--to", "lake", "--logs")
    assert len(logs.out) >= 10 << 20


@pytest.mark.slow
def test_a_line_of_50_mb_loads(project: Project) -> None:
    """One record may be larger than every buffer on its way."""
    done = project.run({"seed": 1, "streams": [stream(records=2, wide=50 << 20)]})
    assert done.code == 0, done.err
    assert project.ids("users") == [1, 2]


@IN_PROCESS
@pytest.mark.slow
def test_other_words_on_stdout_are_kept_as_rejects(project: Project) -> None:
    """A line that is no Singer message is kept with its number, the run says so, and the records around it load."""
    done = project.run({"seed": 1, "stdout_noise": 5, "streams": [stream(records=10)]})
    assert done.code == 0, done.err
    assert project.ids("users") == list(range(1, 11))
    assert any("no Singer messages" in warning for warning in done.json["warnings"])
    [file] = project.lake.glob(".bridge/smoke/rejects/_tap/*.jsonl")
    reject = json.loads(file.read_text())
    assert reject["raw"] == "hello"
    assert reject["offset"] > 1


@IN_PROCESS
def test_a_bad_value_becomes_a_reject_and_the_rest_loads(project: Project) -> None:
    """A text in an integer column is kept as a reject with its reason; extra fields go to their own column."""
    done = project.run({"seed": 1, "streams": [stream(records=10, bad_value=4, extra_field=7)]})
    assert done.code == 0, done.err
    assert done.json["streams"]["users"]["rejected"] == 1
    assert project.ids("users") == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    [file] = project.lake.glob(".bridge/smoke/rejects/users/*.jsonl")
    reject = json.loads(file.read_text())
    assert '"id":4' in reject["raw"].replace(" ", "")
    assert [row[0] for row in project.rows("users", "id") if row[0] == 7] == [7]
    assert [row[0] is not None for row in project.rows("users", "_sdc_extra")].count(True) == 1


@IN_PROCESS
def test_all_types_arrive_as_they_are(project: Project) -> None:
    """Every type of the design, null unions in either order, missing fields: typed columns, read by DuckDB."""
    done = project.run({"seed": 1, "streams": [stream(records=50, types=True)]})
    assert done.code == 0, done.err
    shown = project.command("tables", "show", "--to", "lake", "-s", "users", "--json").json
    types = {column["column"]: column["type"] for column in shown["columns"]}
    assert types["id"] == "int64"
    assert types["amount"] == "double"
    assert types["active"] == "bool"
    assert types["at"] == "timestamp[us, tz=UTC]"
    assert any(type_.startswith("struct<") for type_ in types.values())
    assert any(type_.startswith("list<") for type_ in types.values())
    assert len(project.rows("users")) == 50


@IN_PROCESS
@pytest.mark.slow
def test_a_new_column_is_added_and_a_wider_one_rewritten(project: Project) -> None:
    """A SCHEMA may grow in the middle; a type that older files cannot follow has them written anew."""
    grown = stream(records=100, schema_change={"at": 50, "add": "extra"})
    done = project.run({"seed": 1, "streams": [grown]})
    assert done.code == 0, done.err
    assert project.ids("users") == list(range(1, 101))
    assert [row[0] is None for row in project.rows("users", "extra")].count(False) >= 50
    widened = stream(records=300, schema_change={"at": 250, "retype": "n", "to": "string"})
    before = dict(project.rows("users", "id, n"))
    again = project.run({"seed": 1, "state": {"every": 20}, "streams": [widened]})
    assert again.code == 0, again.err
    after = dict(project.rows("users", "id, n"))
    assert list(after) == list(range(1, 301))
    assert {number: after[number] for number in before} == {n: v if v is None else str(v) for n, v in before.items()}
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 300


@IN_PROCESS
def test_an_empty_stream_has_a_table(project: Project) -> None:
    """A SCHEMA without records gives one empty file that every engine opens, once."""
    for _ in range(2):
        done = project.run({"seed": 1, "streams": [stream(records=0)]})
        assert done.code == 0, done.err
    assert project.rows("users") == []
    assert len(list((project.lake / "smoke/users").glob("*.parquet"))) == 1


@IN_PROCESS
@pytest.mark.slow
def test_two_schemas_of_state_before_anything(project: Project) -> None:
    """A flat STATE, in the spec's own style, resumes too."""
    config = {"seed": 1, "state": {"flat": True, "every": 10}, "streams": [stream(records=60)]}
    assert project.run(config | {"fail": {"at": 35, "how": "exit"}}).code == 1
    assert project.state() == {"users": 30}
    assert project.run(config).code == 0
    assert project.ids("users") == list(range(1, 61))


@IN_PROCESS
@pytest.mark.slow
def test_a_tap_without_states_loads_at_its_clean_end(project: Project) -> None:
    """No STATE ever: a clean end commits everything, a failure nothing."""
    config = {"seed": 1, "state": {"never": True}, "streams": [stream(records=60)]}
    assert project.run(config | {"fail": {"at": 35, "how": "exit"}}).code == 1
    assert project.ids("users") == []
    assert project.run(config).code == 0
    assert project.ids("users") == list(range(1, 61))


@IN_PROCESS
@pytest.mark.slow
def test_a_resumable_full_table_goes_on_where_it_stopped(project: Project) -> None:
    """A versioned FULL_TABLE that died is continued by the next run and swapped at its ACTIVATE_VERSION."""
    full = stream("full", 400, replication_method="FULL_TABLE", version=7, resumable=True)
    config = {"seed": 1, "state": {"every": 50}, "streams": [full]}
    failed = project.run(config | {"fail": {"at": 333, "how": "exit"}}, "--load-method", "overwrite")
    assert failed.code == 1
    assert project.ids("full") == []
    done = project.run(config, "--load-method", "overwrite")
    assert done.code == 0, done.err
    assert project.ids("full") == list(range(1, 401))


@IN_PROCESS
@pytest.mark.slow
def test_start_from_a_given_state(project: Project) -> None:
    """`--state FILE` starts there, and the commit log says so."""
    (project.folder / "state.json").write_text(
        json.dumps({"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 90}}})
    )
    done = project.run({"seed": 1, "streams": [stream(records=100)]}, "--state", "state.json")
    assert done.code == 0, done.err
    assert project.ids("users") == list(range(91, 101))
    kinds = [json.loads(path.read_bytes())["kind"] for path in sorted(project.lake.glob(".bridge/smoke/commits/*"))]
    assert kinds == ["state", "data"]


def test_secrets_reach_nobody(project: Project, tmp_path: Path) -> None:
    """A password that the tap prints is masked in the log, the error, the run record and the terminal."""
    secret = "hunter2-and-more"
    config = {"seed": 1, "secret": secret, "fail": {"at": 5, "how": "exit"}, "streams": [stream(records=10)]}
    done = project.run(config, "-v")
    assert done.code == 1
    kept = [path.read_bytes() for path in project.lake.rglob("*") if path.is_file()]
    assert not any(secret.encode() in text for text in kept)
    assert secret not in done.out + done.err
    assert "***" in project.command("runs", "show", "--to", "lake", "--logs").out


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_pattern_that_nobody_works_out_does_not_hold_a_run(project: Project) -> None:
    """`--timeout` ends it and gives up the rows, no process is left, and without the pattern the next run completes."""
    schema = {"properties": {"id": {"type": "integer"}, "v": {"type": "string", "pattern": "^(a+)+$"}}}
    lines = [
        {"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": []},
        {"type": "RECORD", "stream": "users", "record": {"id": 1, "v": "a" * 40 + "!"}},
        {"type": "STATE", "value": {"bookmarks": {"users": {"replication_key_value": 1}}}},
    ]
    (project.folder / "lines").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    settings = {
        "source": {"tap": ["sh", "-c", "cat lines", "tap"]},
        "destination": {"bucket": "lake", "load_method": "append-only"},
    }
    for validate, code, rows in (("full", 1, []), ("types", 0, [1])):
        pipeline = settings | {"rejects": {"validate": validate}}
        (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))
        done = project.command("run", "smoke", "--json", "--timeout", "20s" if code else "300s", timeout=300)
        assert done.code == code, done.err
        assert project.ids("users") == rows
        assert bool(done.json["state"]) == bool(rows)
        assert not list((project.folder / ".singer-bridge" / "spool").glob("*/*"))
    assert "given up" not in done.err


@IN_PROCESS
def test_values_that_are_not_as_they_came_are_said(project: Project) -> None:
    """In the summary, in the record as differences, and as a mark; a column that becomes text as well."""
    number, time_ = {"type": "number"}, {"type": "string", "format": "date-time"}
    records = [{"a": 0.5, "t": "2024-01-01T00:00:00.1234567Z"}, {"a": 9007199254740993}, {"a": 9007199254740995}]
    first = _messages({"a": number, "t": time_}, records, 1)
    done = _replayed(project, first)
    assert [(each["kind"], each["rows"]) for each in done["differences"]] == [("lost_digits", 2), ("changed_values", 1)]
    assert done["marks"] == {"differs": ["t"]}
    assert any(text.startswith("t: a: 2 values lost digits") and "multipleOf" in text for text in done["warnings"])
    done = _replayed(project, _messages({"a": {"type": "string"}, "t": time_}, [{"a": "x"}], 2))
    assert [each["kind"] for each in done["differences"]] == ["text_column"]
    assert "run p --full -s t" in done["differences"][0]["text"]


def _messages(properties: dict[str, Any], records: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    schema = {"type": "SCHEMA", "stream": "t", "schema": {"properties": properties}, "key_properties": []}
    rows = [{"type": "RECORD", "stream": "t", "record": record} for record in records]
    return [schema, *rows, {"type": "STATE", "value": {"bookmarks": {"t": {"at": at}}}}]


def _replayed(project: Project, messages: list[dict[str, Any]]) -> Any:
    (project.folder / "in.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    done = project.command(
        *("run", "--tap", "tap-replay", "--tap-config", '{"path": "in.jsonl"}', "--to", "lake", "--name", "p", "--json")
    )
    assert done.code == 0, done.err
    return done.json
