"""`smoke`: each fault of a tap has its verdict and no other, and a tap that keeps to the protocol has none."""

from __future__ import annotations

import json
import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.shell import Done, Typed

TAP = str(Path(sys.executable).with_name("tap-smoke"))
STREAM: dict[str, Any] = {"name": "users", "records": 60}

_SCRIPT = """
import json, os, signal, sys, time
said = json.load(open(__file__ + ".json"))
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if said.get("reads_config", True):
    json.load(open(arguments["--config"]))
if "--discover" in sys.argv or "--about" in sys.argv:
    sys.exit(1)
if said.get("ignores_sigterm"):
    signal.signal(signal.SIGTERM, lambda *_: time.sleep(15))
lines = said["again"] if "--state" in arguments and "again" in said else said["lines"]
for line in lines:
    sys.stdout.write((line if isinstance(line, str) else json.dumps(line)) + "\\n")
    sys.stdout.flush()
if said.get("random"):
    print(json.dumps({"type": "RECORD", "stream": "s", "record": {"id": 9, "at": "2026-02-01", "r": time.time_ns()}}))
time.sleep(said.get("sleep", 0))
sys.exit(said.get("code", 0))
"""
"""A tap that says what its neighbour file lists."""

SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "key_properties": ["id"],
    "bookmark_properties": ["at"],
    "schema": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["null", "string"], "format": "date-time"},
            "r": {"type": ["integer", "null"]},
        },
    },
}


def record(number: int, at: Any = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "s", "record": {"id": number, "at": at, **more}}


def state(at: Any) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"s": {"replication_key": "at", "replication_key_value": at}}}}


Smoke = Callable[..., tuple[Done, dict[str, str]]]


@pytest.fixture
def smoke(typed: Typed) -> Smoke:
    """Type `smoke` on tap_smoke with a config; return what came, and the checks that did not pass."""

    def check(config: dict[str, Any], flags: str = "") -> tuple[Done, dict[str, str]]:
        Path("config.json").write_text(json.dumps(config))
        return _not_passed(typed(f"smoke --tap {shlex.quote(TAP)} --tap-config config.json --json {flags}"))

    return check


@pytest.fixture
def scripted(typed: Typed) -> Smoke:
    """Type `smoke` on a tap that says just these lines."""

    def check(lines: list[Any], flags: str = "", **said: Any) -> tuple[Done, dict[str, str]]:
        Path("tap.py").write_text(_SCRIPT)
        Path("tap.py.json").write_text(json.dumps({"lines": lines, **said}))
        words = f"{shlex.quote(sys.executable)} tap.py"
        done = typed(f"smoke --tap {shlex.quote(words)} --tap-config '{{}}' --json {flags}")
        found = _not_passed(done)[1]
        assert found.pop("about") == "skipped"
        assert found.pop("discover") == "failed"
        assert found.pop("catalog") == "skipped"
        return done, found

    return check


def _not_passed(done: Done) -> tuple[Done, dict[str, str]]:
    found = {c["check"]: c["status"] for c in done.json["checks"] if c["status"] != "passed"}
    if found.get("sigterm") == "skipped":  # a tap as short as these may be gone before it hears the signal
        found.pop("sigterm")
    return done, found


def _texts(done: Done, check: str) -> list[str]:
    return [f["text"] for c in done.json["checks"] if c["check"] == check for f in c["findings"]]


CORRECT = {
    "types": {"streams": [{**STREAM, "types": True}]},
    "full": {"streams": [{**STREAM, "replication_method": "FULL_TABLE"}]},
    "versions": {"streams": [{**STREAM, "replication_method": "FULL_TABLE", "version": 7, "activate_first": True}]},
    "two": {"streams": [STREAM, {**STREAM, "name": "b"}], "interleave": True, "state": {"every": 7}},
    "unsorted": {"streams": [{**STREAM, "progress_markers": True}], "state": {"every": 7, "echo": True}},
    "inclusive": {"streams": [{**STREAM, "inclusive": True}], "style": "shuffled"},
}


@pytest.mark.parametrize("config", CORRECT.values(), ids=CORRECT)
def test_a_tap_that_keeps_to_the_protocol_has_no_finding(smoke: Smoke, config: dict[str, Any]) -> None:
    done, found = smoke(config)
    assert done.code == 0
    assert done.json["status"] == "passed"
    assert {check: status for check, status in found.items() if status != "skipped"} == {}
    assert done.json["first_run"]["records"] == 60 * len(config["streams"])


FAULTS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "noise": ({"streams": [STREAM], "stdout_noise": 5}, {"stdout": "failed"}),
    "bad value": ({"streams": [{**STREAM, "bad_value": 9}]}, {"records": "failed"}),
    "extra field": ({"streams": [{**STREAM, "extra_field": 9}]}, {"records": "warning"}),
    "no STATE": (
        {"streams": [STREAM], "state": {"never": True}},
        {"state": "failed", "resume": "skipped", "repeat": "skipped"},
    ),
    "late STATE": (
        {"streams": [STREAM], "state": {"at_end": False, "every": 50}},
        {"state": "warning", "replication-key": "warning"},
    ),
    "exit code": ({"streams": [STREAM], "fail": {"at": 30, "how": "exit"}}, {"exit-code": "failed"}),
    "no key": ({"streams": [{**STREAM, "key_properties": None}]}, {"schema": "warning"}),
    "half a line": ({"streams": [STREAM], "fail": {"at": 30, "how": "half_line_ok"}}, {"stdout": "failed"}),
}


@pytest.mark.parametrize(("config", "verdicts"), FAULTS.values(), ids=FAULTS)
def test_each_fault_has_its_verdict_and_no_other(
    smoke: Smoke, config: dict[str, Any], verdicts: dict[str, str]
) -> None:
    done, found = smoke(config, "--max-seconds 20")
    ignored = {"sigterm"} | ({"resume", "repeat", "replication-key", "state"} if "fail" in config else set())
    assert {c: s for c, s in found.items() if c not in ignored} == {
        c: s for c, s in verdicts.items() if c not in ignored
    }
    assert done.code == (1 if "failed" in verdicts.values() else 0)


SAID: dict[str, tuple[list[Any], dict[str, Any], dict[str, str], str]] = {
    "record before SCHEMA": (
        [record(1), SCHEMA, record(2), state("2026-01-01T00:00:00Z")],
        {},
        {"schema-first": "failed"},
        "a RECORD came before its SCHEMA",
    ),
    "key missing": (
        [SCHEMA, {"type": "RECORD", "stream": "s", "record": {"at": None}}, state("x")],
        {},
        {"keys": "failed"},
        "a key is missing",
    ),
    "key null": (
        [SCHEMA, {"type": "RECORD", "stream": "s", "record": {"id": None, "at": None}}, state("x")],
        {},
        {"keys": "failed", "records": "failed"},
        "a key is null",
    ),
    "key twice": (
        [SCHEMA, record(1), record(1), state("2026-01-01T00:00:00Z")],
        {},
        {"keys": "failed"},
        "two records have one key id",
    ),
    "no date": (
        [SCHEMA, record(1, "yesterday"), state(None)],
        {},
        {"dates": "failed", "resume": "skipped", "repeat": "skipped"},
        "no date-time",
    ),
    "31 February": (
        [SCHEMA, record(1, "2026-02-31T00:00:00Z"), state(None)],
        {},
        {"dates": "failed", "resume": "skipped", "repeat": "skipped"},
        "no date-time",
    ),
    "no JSON Schema": (
        [{**SCHEMA, "schema": {"properties": {"id": {"type": "int"}, "at": {}}}}, record(1), state(None)],
        {},
        {"schema": "failed", "resume": "skipped", "repeat": "skipped"},
        "the SCHEMA is no JSON Schema",
    ),
    "key not declared": (
        [{**SCHEMA, "key_properties": ["nope"]}, record(1), state(None)],
        {},
        {"schema": "failed", "keys": "failed", "resume": "skipped", "repeat": "skipped"},
        "key nope is not in the SCHEMA",
    ),
    "older than bookmark": (
        [SCHEMA, record(1, "2026-01-02"), state("2026-01-02"), record(2, "2026-01-01"), state("2026-01-02")],
        {"again": [SCHEMA, state("2026-01-02")]},
        {"replication-key": "failed"},
        "a record is older than a bookmark before it",
    ),
    "ignores its STATE": (
        [SCHEMA, record(1, "2026-01-01"), record(2, "2026-01-02"), state("2026-01-02")],
        {},
        {"resume": "failed"},
        "a record from before the bookmark came again",
    ),
    "not repeatable": (
        [SCHEMA, record(1, "2026-02-01"), state("2026-02-01")],
        {"random": True},
        {"repeat": "warning", "state": "warning"},
        "two runs from one STATE differ",
    ),
    "accepts any config": (
        [SCHEMA, record(1), state("2026-01-01T00:00:00Z")],
        {"reads_config": False},
        {"bad-config": "failed"},
        "a config that is not JSON is accepted",
    ),
    "STATE without value": (
        [SCHEMA, record(1), {"type": "STATE"}],
        {},
        {"state": "failed", "resume": "skipped", "repeat": "skipped"},
        "a STATE has no value",
    ),
}


@pytest.mark.parametrize(("lines", "said", "verdicts", "text"), SAID.values(), ids=SAID)
def test_what_a_tap_says_wrong_is_found(
    scripted: Smoke, lines: list[Any], said: dict[str, Any], verdicts: dict[str, str], text: str
) -> None:
    done, found = scripted(lines, **said)
    assert found == verdicts
    assert any(said.startswith(text) for check in verdicts for said in _texts(done, check))
    assert done.code == 1  # its --discover fails


def test_an_older_draft_is_a_schema_too(scripted: Smoke) -> None:
    """Numbers are checked by the SCHEMA's own draft: `exclusiveMinimum: true` is Draft 4's."""
    above = {"type": "integer", "minimum": 1, "exclusiveMinimum": True}
    older = {**SCHEMA, "schema": {"properties": {**SCHEMA["schema"]["properties"], "id": above}}}
    again = {"again": [older, state("2026-01-01T00:00:00Z")]}
    _, found = scripted([older, record(2), state("2026-01-01T00:00:00Z")], **again)
    assert found == {}
    done, found = scripted([older, record(1), state("2026-01-01T00:00:00Z")], **again)
    assert found == {"records": "failed"}
    assert _texts(done, "records") == ["not as declared: minimum 1"]


def test_a_reference_to_elsewhere_is_not_fetched(scripted: Smoke) -> None:
    """A definition that the SCHEMA does not have is a fault of its own, once, whatever some server would say."""
    far = {"$ref": "http://127.0.0.1:9/definitions.json#/id"}
    referring = {**SCHEMA, "schema": {"properties": {**SCHEMA["schema"]["properties"], "id": far}}}
    end = state("2026-01-01T00:00:00Z")
    done, found = scripted([referring, record(1), record(2), end], again=[referring, end])
    assert found == {"schema": "failed"}
    assert _texts(done, "schema") == ['a $ref leads nowhere: "http://127.0.0.1:9/definitions.json#/id"']


def test_numbers_are_compared_digit_by_digit(scripted: Smoke) -> None:
    """1.25 is a multiple of 0.00001, whatever a double makes of it; 0.000015 is none. The SCHEMA is quoted."""
    exact = {"type": ["null", "number"], "multipleOf": 1e-05}
    priced = {**SCHEMA, "schema": {"properties": {**SCHEMA["schema"]["properties"], "price": exact}}}
    end = state("2026-01-01T00:00:00Z")
    _, found = scripted([priced, record(1, price=1.25), record(2, price=123456789012345.67), end], again=[priced, end])
    assert found == {}
    done, found = scripted([priced, record(1, price=0.000015), end], again=[priced, end])
    assert found == {"records": "failed"}
    assert _texts(done, "records") == ["not as declared: multipleOf 1e-05"]


_CHOOSY = """
import json, sys
if "--about" in sys.argv:
    sys.exit(2)
given = lambda flag: json.load(open(sys.argv[sys.argv.index(flag) + 1]))
given("--config")
columns = {"id": {"type": "integer"}, "n": {"type": "integer"}}
facts = [{"breadcrumb": [], "metadata": {"table-key-properties": ["id"], "schema-name": "public"}}]
stream = {"tap_stream_id": "s", "stream": "s", "schema": {"properties": columns}, "metadata": facts}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [stream]}))
    sys.exit()
method, begin = given("--catalog")["streams"][0]["metadata"][0]["metadata"]["replication-method"], 0
if method == "INCREMENTAL" and "--state" in sys.argv:
    begin = given("--state")["bookmarks"]["s"]["replication_key_value"]
said = [{"type": "SCHEMA", "stream": "s", "schema": stream["schema"], "key_properties": ["id"]}]
said += [{"type": "RECORD", "stream": "s", "record": {"id": n, "n": n}} for n in range(begin, 21)]
mark = {"replication_key": "n", "replication_key_value": 20} if method == "INCREMENTAL" else {}
said += [{"type": "STATE", "value": {"bookmarks": {"s": mark}}}]
sys.stdout.write("".join(json.dumps(message) + "\\n" for message in said))
"""
"""A tap of a database: it fails at a stream whose replication method nobody chose."""


@pytest.mark.parametrize("settings", [False, True])
def test_the_replication_method_is_the_settings_or_full_table(typed: Typed, settings: bool) -> None:
    """A tap that leaves the choice to its user is no worse for that; what bridge.yaml chose is what is checked."""
    Path("tap.py").write_text(_CHOOSY)
    tap = f"{shlex.quote(sys.executable)} {Path('tap.py').absolute()}"
    words = f"--tap {shlex.quote(tap)} --tap-config '{{}}'"
    if settings:
        streams = {"s": {"replication_method": "INCREMENTAL", "replication_key": "n"}}
        pipeline = {"source": {"tap": tap}, "destination": {"bucket": "lake"}, "streams": streams}
        Path("bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
        words = "p"
    done, found = _not_passed(typed(f"smoke {words} --json --static"))
    assert done.json["first_run"]["records"] == 21
    assert {check: status for check, status in found.items() if status != "skipped"} == {}
    assert found.get("resume", "passed") == ("passed" if settings else "skipped")


@pytest.mark.parametrize("by", ["settings", "catalog"])
def test_a_log_is_never_read(typed: Typed, by: str) -> None:
    """LOG_BASED streams are tried as FULL_TABLE, through the engine, too: a slot that is read loses what it gave."""
    tap = _CHOOSY.replace("said = [{", 'assert method == "FULL_TABLE"\nsaid = [{', 1)
    if by == "catalog":
        discovered = 'stream["metadata"][0]["metadata"]["replication-method"] = "LOG_BASED"'
        tap = tap.replace('if "--discover"', f'{discovered}\nif "--discover"', 1)
    Path("tap.py").write_text(tap)
    source = {"tap": f"{shlex.quote(sys.executable)} {Path('tap.py').absolute()}"}
    pipeline: dict[str, Any] = {"source": source, "destination": {"bucket": "lake"}}
    if by == "settings":
        pipeline["streams"] = {"s": {"replication_method": "LOG_BASED", "replication_key": "_sdc_lsn"}}
    Path("bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    done, found = _not_passed(typed(f"smoke p --json {'--load' if by == 'settings' else ''}"))
    assert done.json["first_run"]["records"] == 21
    assert {check: status for check, status in found.items() if status != "skipped"} == {}
    assert "replication slot: s" in _texts(done, "log-based")[0]
    assert by == "catalog" or "load" not in found


def test_a_tap_that_ignores_sigterm_is_found(scripted: Smoke) -> None:
    """It is given ten seconds; then it is killed."""
    lines = [SCHEMA, record(1), state("2026-01-01T00:00:00Z")]
    done, found = scripted(lines, ignores_sigterm=True, sleep=1.5)
    assert found == {"sigterm": "failed"}
    assert _texts(done, "sigterm") == ["it still ran 10 s after SIGTERM"]


def test_caps_stop_the_tap(smoke: Smoke) -> None:
    done, found = smoke({"streams": [{**STREAM, "records": 10**9}], "state": {"every": 50}}, "--max-records 200")
    assert done.json["first_run"]["records"] == 200
    assert found == {"exit-code": "skipped"}
    assert done.code == 0


def test_static_makes_a_difference_a_failure(scripted: Smoke) -> None:
    lines = [SCHEMA, record(1, "2026-02-01"), state("2026-02-01")]
    _, found = scripted(lines, "--static", random=True)
    assert found["repeat"] == "failed"


def test_golden_is_written_once_and_compared_from_then_on(smoke: Smoke) -> None:
    first, _ = smoke({"streams": [STREAM]}, "--golden golden.json")
    again, _ = smoke({"streams": [STREAM]}, "--golden golden.json")
    assert (first.code, again.code) == (0, 0)
    done, found = smoke({"streams": [{**STREAM, "wide": 5}, {**STREAM, "name": "more"}]}, "--golden golden.json")
    assert found == {"golden": "failed"}
    assert sorted(_texts(done, "golden")) == ["a new stream", "new"]
    assert done.code == 1


def test_only_the_stream_that_was_asked(smoke: Smoke) -> None:
    done, _ = smoke({"streams": [STREAM, {**STREAM, "name": "b"}]}, "-s b")
    assert list(done.json["streams"]) == ["b"]


def test_junit_and_github_say_the_same(smoke: Smoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    done, _ = smoke({"streams": [STREAM], "stdout_noise": 5}, "--junit report.xml")
    suite = ET.parse("report.xml").getroot()
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed == ["stdout"]
    assert (suite.get("failures"), int(suite.get("tests") or 0)) == ("1", len(done.json["checks"]))
    assert "::error title=smoke stdout::a line is no Singer message: line 6: hello" in done.err
    assert "| ❌ | stdout | a line is no Singer message: line 6: hello |" in (tmp_path / "summary.md").read_text()


def test_nothing_is_left_behind(smoke: Smoke) -> None:
    before = {"config.json"}
    smoke({"streams": [STREAM]})
    assert {path.name for path in Path().iterdir()} == before


def test_for_people_there_is_a_table(typed: Typed) -> None:
    Path("config.json").write_text(json.dumps({"streams": [STREAM], "delay_ms": 5}))
    done = typed(f"smoke --tap {shlex.quote(TAP)} --tap-config config.json")
    assert done.code == 0
    assert "✓ keys" in done.out
    assert "✓ it works: 16 checks passed" in done.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("smoke --tap nowhere-to-be-found", "the tap was not found"),
        ("smoke --tap x --env prod", "--tap is checked without any file"),
        ("smoke --tap-config x", "--tap-config needs a tap"),
        (f"smoke --tap {shlex.quote(TAP)} --tap-config '{{\"streams\": [{{}}]}}' -s nope", "nope"),
    ],
)
def test_wrong_words_are_told(typed: Typed, line: str, message: str) -> None:
    done = typed(line)
    assert done.code in (1, 2)
    assert message in done.err
