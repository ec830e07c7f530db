"""Several processes of one tap through the real command and Spark: killed, then with one that fails, then whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Project

TAP = Path(__file__).parents[1] / "paged_tap.py"
SETTINGS = """\
pipelines:
  smoke:
    source:
      tap: [{python}, {tap}]
      config: {{source: {folder}/source.json, given: {folder}}}
      select: ["*"]
      parallelism: 3
    destination: {{bucket: lake}}
    streams:
      b: {{load_method: upsert}}
      c: {{parent: d}}
    commit: {{rows: 1}}
"""


def taps() -> int:
    """Processes of the tap that are alive."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return sum(str(TAP) in line and "ps -eo" not in line for line in listed.splitlines())


def wait_for(what: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_killed_then_one_that_fails_then_whole(project: Project) -> None:
    """No tap outlives the run; what each process had committed stays; in the end each row is there once."""
    text = SETTINGS.format(python=sys.executable, tap=TAP, folder=project.folder)
    (project.folder / "bridge.yaml").write_text(text)

    def source(**streams: dict[str, Any]) -> None:
        wanted = {name: {"last": 300, "seconds": 0.05} | streams.get(name, {}) for name in "abcd"}
        wanted["c"]["parent"] = "d"
        (project.folder / "source.json").write_text(json.dumps({"streams": wanted}))

    source()
    run = subprocess.Popen([sys.executable, "-m", "bridge", "run", "smoke", "--quiet"], cwd=project.folder)
    wait_for((project.lake / ".bridge/smoke/state.json").exists, 60)
    run.send_signal(signal.SIGKILL)
    run.wait()
    wait_for(lambda: not taps(), 10)

    source(a={"seconds": 0}, b={"seconds": 0, "fails_at": 201}, c={"seconds": 0}, d={"seconds": 0})
    done = project.command("run", "smoke", "--json")
    failed = json.loads(done.out)
    assert (done.code, failed["error"]["type"], taps()) == (1, "TapError", 0)
    assert "b: their process of the tap failed, others went on" in "\n".join(failed["warnings"])
    assert project.ids("b") == list(range(1, 201))

    source(**{name: {"seconds": 0} for name in "abcd"})
    done = project.command("run", "smoke", "--json")
    assert (done.code, json.loads(done.out)["warnings"]) == (0, []), done.err
    assert {name: project.ids(name) for name in "abcd"} == {name: list(range(1, 301)) for name in "abcd"}
    assert {mark["replication_key_value"] for mark in project.state()["bookmarks"].values()} == {300}
