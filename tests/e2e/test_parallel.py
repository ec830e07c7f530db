"""Several processes of one tap through the real command and Spark: killed, then with one that fails."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project
from tests.support.view_oracle import check_commits

pytestmark = pytest.mark.usefixtures("in_process")

TAP = Path(__file__).parents[1] / "support" / "paged_tap.py"
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
      a: {{transform: "SELECT id, id * 2 AS twice FROM stream WHERE id % 50 > 0"}}
      b: {{load_method: upsert}}
      c: {{parent: d}}
    views:
      tens_of_a: SELECT id % 10 AS last_digit, count(*) AS n, max(twice) AS most FROM a GROUP BY 1
      tens_of_b: SELECT id % 10 AS last_digit, count(*) AS n, min_by(id, id) AS first FROM b GROUP BY 1
    commit: {{every: 1s}}
"""


def taps(tap: Path) -> int:
    """Processes of the tap that are alive."""
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return sum(str(tap) in line for line in listed.splitlines())


def wait_for(what: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_killed_then_one_that_fails(project: Project) -> None:
    """No tap outlives its run; each goes on from its last commit; the failure of one leaves out its own rows only."""
    tap = Path(shutil.copy(TAP, project.folder))  # by its path no process is taken for that of another test
    text = SETTINGS.format(python=sys.executable, tap=tap, folder=project.folder)
    (project.folder / "bridge.yaml").write_text(text)

    def source(**streams: dict[str, Any]) -> None:
        wanted = {name: {"last": 300, "page": 4, "seconds": 0.1} | streams.get(name, {}) for name in "abcd"}
        (project.folder / "source.json").write_text(json.dumps({"streams": wanted}))

    source()
    run = subprocess.Popen([sys.executable, "-m", "bridge", "run", "smoke", "--quiet"], cwd=project.folder)
    wait_for((project.lake / ".bridge/smoke/state.json").exists, 240)
    run.send_signal(signal.SIGKILL)
    run.wait()
    wait_for(lambda: not taps(tap), 10)

    source(a={"seconds": 0}, b={"seconds": 0, "fails_at": 201}, c={"seconds": 0}, d={"seconds": 0})
    done = project.command("run", "smoke", "--json")
    failed = json.loads(done.out)
    assert (done.code, failed["error"]["type"], taps(tap)) == (1, "TapError", 0)
    assert "b: their process of the tap failed, others went on" in "\n".join(failed["warnings"])
    rows = {name: list(range(1, 301)) for name in "acd"} | {"b": list(range(1, 201))}
    transformed = [(n, 2 * n) for n in rows["a"] if n % 50]
    assert {name: project.ids(name) for name in "bcd"} == {name: rows[name] for name in "bcd"}
    assert project.rows("a", "id, twice") == transformed
    assert check_commits(str(project.lake), "smoke").keys() == {"tens_of_a", "tens_of_b"}
    marks = project.state()["bookmarks"]
    assert {name: mark["replication_key_value"] for name, mark in marks.items()} == {
        n: ids[-1] for n, ids in rows.items()
    }
