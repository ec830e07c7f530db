"""`run` of several pipelines, again and again, and what it says to people and to programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.lease import take
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.shell import Done, Typed

SETTINGS = """
x-lake: &lake {bucket: lake}
pipelines:
  good: {source: {tap: [sh, -c, exit 0]}, destination: *lake}
  bad: {source: {tap: [sh, -c, "echo no such table >&2; exit 1"]}, destination: *lake}
  wrong: {source: {tap: [sh, -c, exit 0], catalog: nowhere.json}, destination: *lake}
  last: {source: {tap: [sh, -c, exit 0]}, destination: *lake}
  silent: {source: {tap: [sh, -c, sleep 60]}, destination: *lake}
"""


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    """Pipelines that end well, fail, are set up wrongly; none has a record, so none needs a JVM."""
    (folder / "bridge.yaml").write_text(SETTINGS)


def ran(folder: Path) -> list[str]:
    """The pipelines of which a run has left its record."""
    return sorted(path.parents[1].name for path in folder.glob("lake/.bridge/*/runs/*.json"))


def events(done: Done) -> list[dict[str, Any]]:
    """Every line of stderr, each one a JSON object."""
    return [json.loads(line) for line in done.err.splitlines()]


def test_several_run_one_after_another_each_with_its_summary(folder: Path, typed: Typed) -> None:
    """Each is named before its summary, in the order that was typed; a name twice is one run."""
    done = typed("run last good last --no-progress")
    assert done.code == 0
    assert re.findall(r"^(\w+)$", done.out, re.MULTILINE) == ["last", "good"]
    assert done.out.count("✓ success") == 2
    assert ran(folder) == ["good", "last"]


def test_the_first_failure_ends_it(folder: Path, typed: Typed) -> None:
    """What comes after a failure is not run, and that is said."""
    done = typed("run good bad last --no-progress")
    assert done.code == 1
    assert ran(folder) == ["bad", "good"]
    assert "not run: last" in done.err
    assert "--keep-going" in done.err


def test_keep_going_runs_all_and_the_worst_code_stands(folder: Path, typed: Typed) -> None:
    """A failure is exit 1, a wrong setting 2, a held pipeline 4: the highest is the exit code."""
    assert typed("run good bad last --keep-going -q").code == 1
    assert ran(folder) == ["bad", "good", "last"]
    assert typed("run bad wrong last --keep-going -q").code == 2
    lease = take(LocalStorage(folder / "lake"), "last", "another")
    try:
        done = typed("run last wrong bad good --keep-going -q")
    finally:
        lease.close(head=0, clean=True)
    assert (done.code, done.out) == (4, "")
    assert done.err.count("error: ") == 3


def test_all_means_every_pipeline_of_the_file(folder: Path, typed: Typed) -> None:
    """In the file's order; with a name beside it nobody knows what is meant."""
    (folder / "bridge.yaml").write_text(SETTINGS.split("  wrong:")[0])
    done = typed("run --all --keep-going --json")
    assert [result["pipeline"] for result in json.loads(done.out)] == ["good", "bad"]
    assert typed("run --all good").code == 2
    assert typed("run --all --to lake").code == 2


def test_json_of_several_is_an_array(typed: Typed) -> None:
    """One name gives one object, several an array, even if the first one fails, or nothing runs at all."""
    assert json.loads(typed("run good --json").out)["status"] == "success"
    several = json.loads(typed("run bad good --json").out)
    assert [(each["pipeline"], each["status"]) for each in several] == [("bad", "failed")]
    [nothing] = json.loads(typed("run good nobody --json").out)
    assert (nothing["status"], nothing["error"]["type"]) == ("failed", "SettingsError")
    assert [plan["pipeline"] for plan in json.loads(typed("run good last --dry-run --json").out)] == ["good", "last"]


@pytest.mark.parametrize(
    "line",
    [
        "run good last --state state.json",
        "run good --keep-going",
        "run good last --to lake",
        "run good --append",
        "run good --every 5m --json",
        "run good --every 5m --full",
        "run good --full --resume",
        "run good --full --max-records 5",
        "run good --max-records 0",
        "run good --timeout 5",
        "run good --every 0s",
        "run good nobody",
    ],
)
def test_flags_that_do_not_go_together_are_refused(line: str, folder: Path, typed: Typed) -> None:
    """Exit code 2, a word on what to do, and no tap was started."""
    done = typed(line)
    assert done.code == 2
    assert re.search(r"hint: |Error: ", done.err)
    assert ran(folder) == []


def test_a_run_that_takes_too_long_is_stopped(typed: Typed) -> None:
    """`--timeout`: the tap is stopped, exit code 1, and the error says that it was the time-out."""
    done = typed("run silent --timeout 1s --json")
    assert done.code == 1
    result = json.loads(done.out)
    assert (result["status"], result["error"]["type"]) == ("failed", "TimedOut")
    assert "--timeout" in result["error"]["hint"]


def test_waiting_for_the_run_that_holds_the_pipeline(folder: Path, typed: Typed) -> None:
    """`--wait`: exit code 4 when the other one is still there afterwards; once it is gone we run."""
    lease = take(LocalStorage(folder / "lake"), "good", "another")
    assert typed("run good -q").code == 4
    assert typed("run good -q --wait 1s").code == 4
    words = [sys.executable, "-m", "bridge", "run", "good", "--wait", "1m", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.5)
        lease.close(head=0, clean=True)
        out, _ = waiting.communicate(timeout=60)
    assert (waiting.returncode, json.loads(out)["status"]) == (0, "success")


def test_a_signal_ends_all_of_them(folder: Path) -> None:
    """SIGTERM while the first one runs: its own exit code, and no other is begun, --keep-going or not."""
    words = [sys.executable, "-m", "bridge", "run", "silent", "good", "--keep-going", "--log-format", "json"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        assert json.loads(child.stderr.readline())["event"] == "run_started"
        child.send_signal(signal.SIGTERM)
        said = [json.loads(line)["event"] for line in child.stderr]
        assert child.wait(timeout=60) == 143
    assert said == ["run_finished", "error", "not_run"]
    assert set(ran(folder)) <= {"silent"}


def test_every_runs_again_until_a_signal(folder: Path) -> None:
    """`--every`: run, say when the next is, run again; a failure does not end it, SIGTERM does, with its own code."""
    words = [sys.executable, "-m", "bridge", "run", "bad", "--every", "1s", "--log-format", "json"]
    seen: list[str] = []
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        for line in child.stderr:
            seen.append(json.loads(line)["event"])
            if seen.count("next_run") == 2:
                break
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == 143
    assert seen.count("run_finished") == 2
    assert ran(folder) == ["bad", "bad"]


def test_every_ends_at_a_wrong_setting(typed: Typed) -> None:
    """What would be wrong in five minutes, too, is not tried again."""
    assert typed("run wrong --every 1s -q").code == 2


def test_events_for_a_program(typed: Typed) -> None:
    """Progress, the tap's stderr, warnings and errors are JSON objects on stderr; stdout keeps to the result."""
    done = typed("run good bad last --log-format json -v")
    assert done.out == ""
    seen = events(done)
    assert [event["event"] for event in seen] == [
        *("run_started", "run_finished", "warning"),  # no stream came, and the tap was passed no catalog
        *("run_started", "tap", "run_finished", "traceback", "error"),
        "not_run",
    ]
    assert all({"time", "level", "event"} <= event.keys() for event in seen)
    assert "singer-bridge discover good" in json.dumps(seen[2])
    tap = next(event for event in seen if event["event"] == "tap")
    assert (tap["pipeline"], tap["line"]) == ("bad", "no such table")
    error = next(event for event in seen if event["event"] == "error")
    assert (error["type"], error["exit_code"], error["level"]) == ("TapError", 1, "error")
    assert seen[-1]["pipelines"] == ["last"]


def test_events_beside_the_json_document(typed: Typed) -> None:
    """`--json` and `--log-format json` go together: the document on stdout, the events on stderr; -q: errors only."""
    done = typed("run good --json --log-format json")
    assert json.loads(done.out)["status"] == "success"
    assert [event["event"] for event in events(done)] == ["run_started", "run_finished", "warning"]
    assert typed("run good -q --log-format json").err == ""
    assert [event["event"] for event in events(typed("run bad -q --log-format json"))] == ["error"]


def test_attempts_are_told(folder: Path, typed: Typed) -> None:
    """A failure that is tried again says so, and the summary which attempt it was."""
    retrying = "    retry: {attempts: 2, backoff: 1s}\n"
    settings = f"pipelines:\n  p:\n    source: {{tap: [sh, -c, exit 1]}}\n    destination: {{bucket: lake}}\n{retrying}"
    (folder / "bridge.yaml").write_text(settings)
    done = typed("run --no-progress")
    assert done.code == 1
    assert "attempt 2 of 2 in 1 s" in done.err
    assert re.findall(r"attempt \d of \d", done.out) == ["attempt 1 of 2", "attempt 2 of 2"]
    assert json.loads(typed("run --json").out)["attempt"] == 2
    assert os.environ.get("SINGER_BRIDGE_LOG_FORMAT") is None


@pytest.mark.usefixtures("run_ids")
def test_resume_leaves_out_what_the_last_batch_loaded(folder: Path, typed: Typed) -> None:
    """Pipelines that succeeded are not run again, until all have succeeded; then the next batch has all of them."""
    tap = folder / "tap"
    settings = SETTINGS.partition("pipelines:")[0] + "pipelines:\n"
    for name in ("one", "two", "three"):
        settings += f"  {name}: {{source: {{tap: [sh, {tap}, {name}], discover: never}}, destination: *lake}}\n"
    (folder / "bridge.yaml").write_text(settings)

    def run(line: str, fails: str) -> tuple[int, list[str]]:
        """Run while this pipeline's tap fails; which taps were started."""
        tap.write_text(f'echo $1 >> {folder}/started; test "$1" != "{fails}"\n')
        (folder / "started").write_text("")
        code = typed(line).code
        return code, (folder / "started").read_text().split()

    assert run("run --all -q", "two") == (1, ["one", "two"])
    assert run("run two -q", "two") == (1, ["two"]), "a run alone is no batch"
    assert run("run --all --resume -q", "three") == (1, ["two", "three"])
    assert run("run --all --resume -q", "three") == (1, ["three"])
    done = typed("run --all --resume --dry-run --json")
    assert [plan["pipeline"] for plan in done.json] == ["three"]
    assert run("run --all --resume -q", "") == (0, ["three"])
    assert run("run --all --resume -q", "") == (0, ["one", "two", "three"])


def test_a_run_without_records_needs_neither_pandas_nor_pyspark() -> None:
    """Both are slow to import: a run does it while the JVM starts, and one that starts no JVM not at all."""
    program = "import sys; from bridge.cli import main\n"
    program += "try: main(['run', 'good', '--no-progress'])\nexcept SystemExit: pass\n"
    program += "print(*sorted(m for m in sys.modules if m in ('pandas', 'pyspark', 'pyarrow.dataset')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "✓ success" in done.stdout
    assert done.stdout.splitlines()[-1] == ""
