"""What tests share: a bridge.yaml that is written and loaded, a command that is typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path

import pytest

from bridge.settings.load import Settings, load
from tests.support.lake import Lake
from tests.support.pipe import InProcess
from tests.support.shelf import Shelf
from tests.support.shell import Typed, Words, type_in, type_words
from tests.support.tap_runs import ResumingRuns

Load = Callable[..., Settings]


@pytest.fixture(scope="package", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """No unit test cuts the power, and thousands of fsyncs would measure the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)
        yield


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs decode in this process what Spark's workers would."""
    monkeypatch.setattr("bridge.load.run.execution.Loader", InProcess)


@pytest.fixture
def runs(tmp_path: Path, without_spark: None) -> ResumingRuns:
    """Whole runs of a tap that goes on from its bookmarks."""
    return ResumingRuns(tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A bucket under the commit protocol."""
    return Lake(tmp_path)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """A lake that whole loads go to, and the rejects that they leave."""
    return Shelf(tmp_path)


@pytest.fixture
def settings(tmp_path: Path) -> Load:
    """Write a bridge.yaml, load it, and check every pipeline in it."""

    def write_and_load(text: str, environ: Mapping[str, str] | None = None, env: str | None = None) -> Settings:
        (tmp_path / "bridge.yaml").write_text(text, encoding="utf-8")
        loaded = load(tmp_path / "bridge.yaml", environ or {}, env)
        assert all(loaded.pipelines.values())
        return loaded

    return write_and_load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, the taps on PATH, and nobody's variables."""
    for name in os.environ:
        if name.startswith("SINGER_BRIDGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(folder: Path, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Type a command in that folder."""
    return type_in(capfd)


@pytest.fixture
def bridge(folder: Path, capfd: pytest.CaptureFixture[str]) -> Words:
    """Type the words of a command in that folder."""
    return lambda *words: type_words(capfd, *words)


@pytest.fixture
def run_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each run, so that ids sort as the runs began."""
    began = datetime.now(timezone.utc) - timedelta(minutes=5)
    ids = (f"{began + timedelta(seconds=n):%Y%m%dT%H%M%SZ}-aaaa" for n in count())
    for place in ("bridge.load.run.run", "bridge.load.run.trace", "bridge.cli.run.batch"):
        monkeypatch.setattr(f"{place}.new_run_id", lambda: next(ids))
