"""The progress of a run: true while it works, and at once when all that is left is Spark's next start."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from bridge.cli.run.progress import Progress
from bridge.cli.show import console
from bridge.load.run.result import Counts
from bridge.load.run.run import Run
from bridge.settings.load import load
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "bridge.yaml").write_text("pipelines: {shop: {source: {tap: t}, destination: {bucket: lake}}}")
    pipeline: Pipeline = load(tmp_path / "bridge.yaml", {}).pipeline("shop")
    return Run(pipeline, Request(), tmp_path)


def frame(run: Run) -> str:
    """What a terminal shows."""
    out = console()
    out.width = 100
    with out.capture() as caught:
        out.print(Progress(run, enabled=False)._table())
    return caught.get()


def test_the_rate_is_the_taps(run: Run) -> None:
    """It stands still when the tap has ended, and is none for a tap that was done at once."""
    now = time.monotonic()
    run.result.streams["users"] = Counts("overwrite", "", records=6000, first_at=now - 60, last_at=now - 57)
    run.context.stage = "starting Spark"
    assert "shop: starting Spark   0 s   2,000 records/s" in frame(run)
    run.context.stage = "extracting"
    assert "   100 records/s" in frame(run)
    run.result.streams["users"].last_at = now - 60
    run.context.stage = "writing"
    assert "records/s" not in frame(run)


def test_figures_come_when_there_are_any(run: Run) -> None:
    """No column of zeros while Spark starts."""
    counts = run.result.streams["users"] = Counts("overwrite", "", records=6000)
    assert frame(run).splitlines()[-1].split() == ["users", "6,000"]
    counts.committed, counts.bytes = 6000, 2048
    assert frame(run).splitlines()[-1].split() == ["users", "6,000", "6,000", "2.0", "KiB"]


def test_a_slow_start_of_spark_says_what_shortens_it(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After three seconds, on one line, as long as it lasts; with a word on the archive where there is none yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SINGER_BRIDGE_CLASS_DATA", raising=False)
    run.context.stage = "starting Spark"
    progress = Progress(run, enabled=False)
    assert not progress._explain_start()
    assert progress._starting is not None
    progress._starting -= 3
    assert progress._explain_start()
    assert "a JVM of this run's own" in progress._note
    assert "a background process prepares faster ones" in progress._note
    assert len(progress._table().renderables) == 2
    run.context.stage = "writing"
    assert not progress._explain_start()
    run.context.stage = "starting Spark"
    assert not progress._explain_start()  # another start, such as of a retry, is timed anew


def test_without_a_terminal_it_is_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the line every ten seconds."""
    run.context.stage = "starting Spark"
    progress = Progress(run, enabled=False)
    progress._starting = time.monotonic() - 3
    thread = threading.Thread(target=progress._lines)
    thread.start()
    while not progress._note:
        thread.join(0.05)
    progress._ended.set()
    thread.join()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(".")[0] for line in lines] == ["shop: starting Spark"]
    assert "a JVM of this run's own" in lines[0]
