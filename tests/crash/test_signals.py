"""Polite ends and rivals: SIGTERM and SIGINT, once and twice, a tap that is asked to stop, two runs at once."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from .campaign import ORPHAN_SECONDS, RUN_SECONDS, Campaign
from .oracle import check_bookmarks
from .orchestrator import Orchestrator
from .project import APPEND, NEW_RECORDS, Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two append-only streams over an empty lake."""
    return Project(tmp_path, APPEND)


def _last_said(project: Project) -> int:
    """Return how many records the tap had counted on stderr when it was stopped, over both streams."""
    logs = sorted((project.meta / "logs").glob("*Z-????.log"))
    counts = [line.split()[1] for line in logs[-1].read_text().splitlines() if line.endswith(" records")]
    return int(counts[-1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_with_all_that_its_last_state_covers(
    project: Project, number: signal.Signals, code: int
) -> None:
    """What the tap had said before the signal is committed, nobody lives on, the next run completes the lake."""
    with Orchestrator(project.folder) as run:
        run.wait_for_records()
        run.wait_for("jvm")
        run.process.send_signal(number)
        assert run.wait(RUN_SECONDS) == code, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
        assert run.result["status"] == "interrupted"
    check_bookmarks(project)
    said = _last_said(project)
    committed = sum(sum(project.history.live(stream).values()) for stream, _ in project.tables)
    # a STATE follows every 50th record of a stream; what was in the pipe when we stopped reading is extracted again
    assert said - 300 <= committed <= said + 100
    assert 0 < committed < 2 * NEW_RECORDS
    assert json.loads((project.meta / "lease.json").read_bytes())["closed"] is None
    Campaign(project).clean_run()


def test_a_second_ctrl_c_ends_it_now(project: Project) -> None:
    """The second SIGINT does not wait for anything, and still leaves no process; the lake is as after any crash."""
    with Orchestrator(project.folder) as run:
        run.wait_for_records()
        run.wait_for("jvm")
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once are one
        run.process.send_signal(signal.SIGINT)
        assert run.wait(1) == 130
        assert run.survivors(ORPHAN_SECONDS) == []
    check_bookmarks(project)
    Campaign(project).clean_run()


def test_a_tap_that_is_asked_to_stop_is_taken_at_its_word(project: Project) -> None:
    """A tap that answers SIGTERM with its STATE and exit 0 has ended well: that is committed, the rest comes later."""
    with Orchestrator(project.folder) as run:
        run.wait_for_records()
        run.wait_for("tap").terminate()
        assert run.wait(RUN_SECONDS) == 0, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
    check_bookmarks(project)
    assert 0 < project.bookmark("orders")["replication_key_value"] < NEW_RECORDS
    Campaign(project).clean_run()


def test_the_second_of_two_runs_stops_at_once_and_names_the_first(project: Project) -> None:
    """Exit 4 within two seconds and who holds it; the first does not notice."""
    state = project.next_state()
    with Orchestrator(project.folder) as first:
        first.wait_for_records()
        with Orchestrator(project.folder) as second:
            assert second.wait(5) == 4
            error = second.result["error"]
            assert error["type"] == "PipelineHeld"
            assert f"pid={first.process.pid}" in error["message"]
            assert second.survivors(0) == []
        assert first.wait(RUN_SECONDS) == 0, first.stderr
        assert first.result["run_id"] in error["message"]
    check_bookmarks(project)
    assert project.history.state == state
