"""A run's scratch: for its user alone, and of a log that never ends only the end."""

from __future__ import annotations

import stat
from contextlib import closing
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.lake.runs import read_log
from bridge.lake.storage import open_storage
from bridge.load.run.scratch import EndOfLog, Scratch, check_paths
from bridge.settings.options import Pipeline


def scratch(root: Path, master: str = "local[*]", spool: str | None = None) -> Scratch:
    settings = {"name": "p", "source": {"tap": "tap"}, "destination": {"bucket": str(root / "lake")}}
    settings |= {"spark": {"master": master}, "spool": {"dir": spool or str(root / "shared")}}
    return Scratch(root / "home", Pipeline.model_validate(settings), "run")


@pytest.mark.parametrize("master", ["local[*]", "spark://host:7077"])
def test_nobody_else_reads_the_spool(tmp_path: Path, master: str) -> None:
    """Rows lie there as the tap sent them; only a cluster's executors may be of another user."""
    folders = scratch(tmp_path, master)
    folders.prepare(open_storage(str(tmp_path / "lake")))
    modes = {stat.S_IMODE(folder.parent.stat().st_mode) & 0o077 for folder in (folders.spool, folders.spark)}
    assert (modes == {0}) is (master == "local[*]")
    assert folders.spool.is_dir()
    assert folders.spark.is_dir()


def test_nobody_else_reads_a_spool_that_executors_read_from_the_bucket(tmp_path: Path) -> None:
    """They read what the driver uploads, so its own folder is for its user alone, in the project."""
    folders = scratch(tmp_path, "spark://host:7077", "bucket")
    folders.prepare(open_storage(str(tmp_path / "lake")))
    assert folders.spool.is_relative_to(tmp_path / "home" / "spool")
    assert stat.S_IMODE(folders.spool.parent.stat().st_mode) & 0o077 == 0


def test_a_log_that_never_ends_is_bounded(tmp_path: Path) -> None:
    """On disk it is never more than twice what is kept of it, and what is kept is whole lines up to the last."""
    path, most = tmp_path / "log", 0
    with closing(EndOfLog(path, 1000)) as log:
        for number in range(1000):
            log.write(b"%09d\n" % number)
            log.flush()
            most = max(most, path.stat().st_size)
    lines = path.read_bytes().splitlines()
    assert most <= 2000
    assert lines == [b"%09d" % number for number in range(1000 - len(lines), 1000)]
    assert len(lines) >= 99


def test_the_end_of_a_long_log_is_kept_in_the_bucket(tmp_path: Path) -> None:
    """What the tap said last is what one wants to read of a run, also of one that said 100 MiB."""
    folders, storage = scratch(tmp_path), open_storage(str(tmp_path / "lake"))
    folders.prepare(storage)
    with closing(EndOfLog(folders.tap_log)) as log:
        for number in range(100):
            log.write(b"%d" % number * (1 << 19) + b"\n")
    assert folders.tap_log.stat().st_size <= 64 << 20
    folders.keep_logs(storage)
    assert (read_log(storage, "p", "run") or b"").endswith(b"99\n")


@pytest.mark.parametrize(("name", "refused"), [("a:b[c]", True), ("a:b", False), ("b[c] {d}", False), ("a:b\\c", True)])
def test_folders_that_spark_cannot_open(tmp_path: Path, name: str, refused: bool) -> None:
    """A colon beside a character of patterns is refused before anything starts; each alone works."""
    settings = {"name": "p", "source": {"tap": "x"}, "destination": {"bucket": str(tmp_path)}}
    pipeline = Pipeline.model_validate(settings)
    if not refused:
        check_paths(tmp_path / name, pipeline)
        return
    with pytest.raises(SettingsError, match="has a colon") as caught:
        check_paths(tmp_path / name, pipeline)
    assert "spool.dir" in caught.value.hint
