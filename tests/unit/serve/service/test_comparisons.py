"""`reconcile.schedule` in the service: compared when it is due, beside the runs; what came out is said and kept."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.reconciled import Proof
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.comparisons import Comparisons
from bridge.serve.service.current_settings import CurrentSettings
from tests.support.service import Log, until
from tests.support.shell import Typed
from tests.unit.operate.reconcile.test_apply import rows
from tests.unit.operate.reconcile.test_reconcile import Source

SUNDAY = datetime(2026, 11, 29, 3, tzinfo=timezone.utc)


class Due:
    """The comparisons of a service at a time that we choose."""

    def __init__(self, folder: Path) -> None:
        self.log = Log()
        settings = CurrentSettings(folder / "bridge.yaml", None, pytest.fail)
        self.comparisons = Comparisons(settings, folder / ".singer-bridge", self.log)  # type: ignore[arg-type]
        self.comparisons.start_due(SUNDAY - timedelta(hours=1))

    def at(self, time: datetime) -> str:
        """The texts of the log, once all that is due by then has ended."""
        self.comparisons.start_due(time)
        until(lambda: self.comparisons.is_empty)
        return "\n".join(self.log.texts)


@pytest.fixture
def source(folder: Path, typed: Typed, without_spark: None) -> Source:
    return Source(folder, typed)


def changed(source: Source, **reconcile: Any) -> None:
    """A lake whose source has lost row 2 since."""
    times = {"schedule": "0 3 * * 0", "timezone": "UTC"}
    source.settings(destination={"hard_delete": True}, reconcile=times | reconcile)
    source.has(*source.rows(_1="a", _2="b", _3="c"))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="a", _3="c"))


def proof(source: Source) -> Proof | None:
    return Proof.last(LocalStorage(source.folder / "lake"), "shop").get("orders")


def test_it_is_compared_when_it_is_due(source: Source) -> None:
    """Once a time, not before it; tables stay."""
    changed(source, keys=True)
    due = Due(source.folder)
    try:
        assert (
            due.at(SUNDAY - timedelta(minutes=1)) == "shop: its next comparison with its source is at 2026-11-29 03:00"
        )
        text = due.at(SUNDAY)
        assert "shop: it is compared with its source" in text
        assert "shop: warning: 1 table is not as its source, through commit 1 at " in text
        assert "; orders: 1 key not at the source" in text
        found = proof(source)
        assert found and (found.extra, found.compared) == (1, "keys")
        assert due.at(SUNDAY + timedelta(minutes=1)) == text
    finally:
        due.comparisons.close(signal.SIGTERM)
    assert rows(source) == [(1, "a"), (2, "b"), (3, "c")]


def test_it_is_applied(source: Source) -> None:
    changed(source, apply=True)
    due = Due(source.folder)
    text = due.at(SUNDAY)
    assert "shop: the lake is as its source, through commit 2 at " in text
    assert "; orders: commit 2 made it as its source: 1 extra" in text
    due.comparisons.close(signal.SIGTERM)
    assert rows(source) == [(1, "a"), (3, "c")]


def test_an_extraction_that_fails_is_said(source: Source) -> None:
    changed(source)
    (source.folder / "shop.jsonl").unlink()
    due = Due(source.folder)
    assert "shop: error: not compared with its source: " in due.at(SUNDAY)
    due.comparisons.close(signal.SIGTERM)
    assert proof(source) is None


def test_the_end_of_the_service_ends_it(source: Source) -> None:
    """A comparison that is under way gets the signal, and leaves nothing."""
    changed(source)
    slow = source.folder / "slow.py"
    slow.write_text("import time, pathlib\npathlib.Path('begun').touch()\ntime.sleep(60)\n")
    document = json.loads((source.folder / "bridge.yaml").read_text())
    document["pipelines"]["shop"]["source"] = {"tap": "python3 slow.py"}
    (source.folder / "bridge.yaml").write_text(json.dumps(document))
    due = Due(source.folder)
    due.comparisons.start_due(SUNDAY)
    until((source.folder / "begun").exists)
    began = time.monotonic()
    due.comparisons.close(signal.SIGTERM)
    until(lambda: due.comparisons.is_empty)
    assert time.monotonic() - began < 30
    assert not [path for path in (source.folder / ".singer-bridge/reconcile").iterdir() if path.is_dir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_it_listens_is_kept_for_it(source: Source, number: signal.Signals) -> None:
    """A service that ends at once after it began: nothing is compared, and nothing committed."""
    changed(source, apply=True)
    due = Due(source.folder)
    due.comparisons.start_due(SUNDAY)
    until(lambda: "shop: it is compared with its source" in due.log.texts)
    due.comparisons.close(number)
    until(lambda: due.comparisons.is_empty)
    assert due.log.texts[-1] == "shop: its comparison with its source was stopped"
    assert rows(source) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_lake_that_is_not_mounted_stays_empty(source: Source) -> None:
    """An empty folder where the lake was is written into by nobody, however often it is compared; runs refuse it."""
    changed(source, apply=True)
    lake = source.folder / "lake"
    lake.rename(source.folder / "away")
    lake.mkdir()
    due = Due(source.folder)
    for week in range(3):
        assert "mount it, or restore it from a backup" in due.at(SUNDAY + timedelta(7 * week))
    due.comparisons.close(signal.SIGTERM)
    assert list(lake.iterdir()) == []
    assert "the lake is empty" in source.typed("run shop").err
    assert "the lake is empty" in source.typed("reconcile shop").err


def test_a_table_of_which_the_tap_says_nothing(source: Source) -> None:
    """It is not called different: nobody could compare it, and the log says why."""
    changed(source)
    (source.folder / "shop.jsonl").write_text("")
    due = Due(source.folder)
    text = due.at(SUNDAY)
    assert "shop: warning: 1 table is not compared, through commit 1 at " in text
    assert "; orders was not compared: the tap sent nothing of it, not even its SCHEMA" in text
    due.comparisons.close(signal.SIGTERM)
