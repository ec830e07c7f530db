"""An attack on what is decided by run records: some are torn, odd, of nobody, or from the future.

Whatever stands in them, each is a row of its own, and all that is decided is what it would be without them. `SEED` and
`CASES` choose others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bridge.lake.log import Log
from bridge.lake.run_status import failures, fresh_since, is_stale, last_success
from bridge.lake.runs import RunFile, any_run, counted_ids, read_attempts, read_opened, run_ids
from bridge.lake.storage.local.storage import LocalStorage
from bridge.lake.times import read_time
from bridge.load.run.checks.fingerprint import last_fingerprint
from bridge.load.run.planning.resume import completed
from bridge.read.query.runs import latest_runs
from bridge.read.query.status import pipeline_status
from bridge.serve.facts.facts import facts_by_clock, facts_of
from bridge.serve.facts.metrics import figures
from bridge.serve.service.past_runs import served_until
from bridge.serve.service.web.pipeline_status import RunFacts
from bridge.settings.options import Pipeline

SEED = int(os.environ.get("SEED", "3"))
CASES = int(os.environ.get("CASES", "60"))
DAY = timedelta(days=1)
PARTS: dict[str, Any] = {"tap": {}, "config": {}, "streams": {}}
HUGE = "1e999999999"
NO_CLOCK = ["0001-01-01T00:00:00+00:00", "9999-12-31T00:00:00+00:00"]
"""From here a zone or a year leads out of the calendar."""


def record(random: Random, storage: LocalStorage, began: datetime, number: int) -> str:
    """Leave the record of a run."""
    run, at = f"{began:%Y%m%dT%H%M%SZ}-{number:04d}", began.isoformat(timespec="seconds")
    status = random.choice(["success", "failed", "interrupted", "held", "running", "success"])
    streams = {name: {"records": random.randint(0, 9), "complete": random.random() < 0.5} for name in "ab"}
    facts: dict[str, Any] = {"status": status, "streams": streams, "commits": 1, "fingerprint": PARTS | {"n": number}}
    if status != "running":
        facts["ended"] = at
    if random.random() < 0.3:
        facts["requested"] = {"streams": ["a"]}
    if status == "held":
        facts["opened"] = False
    RunFile(storage, "shop", run, started=at, process={"host": "elsewhere", "pid": 1, "start": "1"}).update(**facts)
    return run


def torn(random: Random, path: Path) -> None:
    """Make a record of what none is."""
    whole = path.read_bytes()
    facts, key = (
        json.loads(whole),
        random.choice(["started", "ended", "since", "streams", "run_id", "attempt", "error"]),
    )
    odd: Any = random.choice(
        ["often", "2026-01-01T00:00:00", "9999-12-31T23:59:59-14:00", 10**400, [], True, "\ud800", *NO_CLOCK]
    )
    since = {"run_id": path.stem, "at": "never", "is_success": True}
    value = since if key == "since" else odd if key != "error" else "no object"
    if key in ("started", "ended", "run_id") and odd is True:
        value = HUGE
    text = json.dumps(facts | {key: value}).replace(f'"{HUGE}"', HUGE).encode()
    path.write_bytes(
        random.choice([b"", whole[: len(whole) // 2], b"\xff" + whole, b"[]", b"[" * 9999, text, text, text])
    )


def decided(storage: LocalStorage, pipeline: Pipeline, now: datetime) -> dict[str, Any]:
    """Whatever goes by the records of earlier runs."""
    failed, since = failures(storage, "shop"), fresh_since(storage, "shop")
    success = last_success(storage, "shop")
    told = [
        fact
        for run in run_ids(storage, "shop")
        if (one := any_run(storage, "shop", run))
        for fact in _told(storage, one)
    ]
    return {
        "attempts": [run.run_id for run in read_attempts(storage, "shop", 99)],
        "opened": [run.run_id for run in read_opened(storage, "shop", 99)],
        "served": served_until(pipeline, now),
        "failures": failed
        and (failed.count, failed.since, failed.last.run_id, failed.success and failed.success.run_id),
        # A time that is ahead counts as the present, which moves on during the test.
        "since": since and (since.run_id, since.is_success, min(read_time(since.at), now)),
        "stale": since and is_stale(since, DAY, now),
        "success": success and success.run_id,
        "fingerprint": last_fingerprint(storage, "shop"),
        "told": told,
    }


def _told(storage: LocalStorage, record: Any) -> list[str]:
    return [fact.text for fact in facts_of(storage, record)]


def shown(storage: LocalStorage) -> Iterator[dict[str, Any]]:
    for run in latest_runs(Log(storage, "shop"), every=True):
        RunFacts.of("shop", run)
        json.dumps(run.stored, default=str)
        yield {"run_id": run.run_id, "status": run.status}


@pytest.mark.parametrize("case", range(CASES))
def test_what_is_decided_beside_damaged_records(tmp_path: Path, case: int) -> None:
    """All is decided as if the damaged records were not there; each is shown, and no other looks different."""
    random, now = Random(SEED * 1_000_000 + case), datetime.now(timezone.utc).replace(microsecond=0)
    storage = LocalStorage(tmp_path / "lake")
    storage.prepare()
    destination = {"bucket": str(tmp_path / "lake")}
    facts = {"name": "shop", "source": {"tap": "x"}, "destination": destination, "stale_after": "1d"}
    pipeline = Pipeline.model_validate(facts)
    runs = [record(random, storage, now - random.random() * 3 * DAY, n) for n in range(random.randint(1, 12))]
    folder = tmp_path / "lake/.bridge/shop/runs"
    before = {row["run_id"]: row for row in shown(storage)}
    damaged = [run for run in runs if random.random() < 0.4]
    ahead = [
        record(random, storage, now + random.choice([0.1, 1, 900]) * DAY, 100 + n) for n in range(random.randint(0, 3))
    ]
    for run in damaged:
        torn(random, folder / f"{run}.json")
    rows = list(shown(storage))
    assert {row["run_id"] for row in rows} == {*runs, *ahead}
    assert {row["run_id"] for row in rows if row["status"] == "unreadable"} == set(damaged)
    assert [row for row in rows if row["run_id"] not in (*damaged, *ahead)] == [
        before[run] for run in sorted(set(runs) - set(damaged), reverse=True)
    ]
    status = pipeline_status(Log(storage, "shop"), now, DAY)
    assert set(status["ahead"]) == set(ahead)
    counted = filter(None, (any_run(storage, "shop", run) for run in counted_ids(storage, "shop")))
    latest = next((run for run in counted if run.status != "held"), None)
    assert status["run_id"] == (latest.run_id if latest else None)
    figures(storage, "shop", DAY)
    list(facts_by_clock(storage, "shop", DAY, now))
    for marker in folder.glob("*.stale"):
        marker.unlink()
    if latest and not latest.is_readable:
        assert completed(storage, "shop") == set()
    result = decided(storage, pipeline, now)
    for run in damaged:
        (folder / f"{run}.json").unlink()
    assert decided(storage, pipeline, now) == result, "without what is damaged"
    if set(runs) - set(damaged):  # else only they tell that it ran
        served = result["served"]
        for run in ahead:
            (folder / f"{run}.json").unlink()
        assert served_until(pipeline, now) == served, "without what is ahead"
