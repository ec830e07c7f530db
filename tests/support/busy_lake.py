"""A project whose pipelines have run often: buckets as the real writers leave them, made in seconds, without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from bridge.lake.commit.open import open_pipeline
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import table_change

FIRST = "p000"


def busy_project(root: Path, pipelines: int, runs: int) -> Path:
    """Write bridge.yaml and a lake with so many pipelines of so many runs, one commit each; return the file."""
    names = [f"p{number:03}" for number in range(pipelines)]
    write_settings(root, names)
    lake = LocalStorage(root / "lake")
    for number in range(runs):
        began = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=number)
        record_run(lake, FIRST, began, "success", rows=1000 + number)
    for name in names[1:]:
        _copy(root / "lake" / ".bridge", name)
    return root / "bridge.yaml"


def write_settings(root: Path, names: Sequence[str], **more: str) -> Path:
    """Write a bridge.yaml of pipelines with one bucket; `more`: further keys of a pipeline, in YAML."""
    root.mkdir(parents=True, exist_ok=True)
    lines = [
        f'  {name}: {{source: {{tap: "true", discover: never}}, destination: {{bucket: lake}}{more.get(name, "")}}}'
        for name in names
    ]
    (root / "bridge.yaml").write_text("\n".join(["pipelines:", *lines, ""]))
    return root / "bridge.yaml"


def record_run(
    lake: LocalStorage, pipeline: str, began: datetime, status: str, *, rows: int = 0, run: str = "", **facts: Any
) -> str:
    """Leave what a run leaves: its record and, if it loaded `rows`, a commit with a bookmark.

    It has read `read` records, or as many.
    """
    run = run or f"{began:%Y%m%dT%H%M%SZ}-{random.Random(str(began) + pipeline).randrange(36**3, 36**4):x}"
    with open_pipeline(lake, pipeline, run) as committer:
        record = RunFile(lake, pipeline, run, tap="tap-x", started=began.isoformat(timespec="seconds"))
        if rows:
            state = {
                "bookmarks": {"s": {"replication_key": "id", "replication_key_value": committer.snapshot.n + rows}}
            }
            commit_rows(lake, committer, state, rows)
        last = committer.snapshot.n
    read = facts.pop("read", rows)
    counts = {"read": read, "records": rows, "files": int(rows > 0), "bytes": 4 * (rows > 0)}
    streams = {"s": counts | {"load_method": "append-only"}} if read else {}
    took = facts.pop("took", 41.5)
    outcome = {
        "commits": 1 if rows else 0,
        "commit": last,
        "streams": streams,
        "seconds": {"total": took},
        "error": None,
    } | facts
    record.finish(status=status, **outcome)
    ended = (began + timedelta(seconds=took)).isoformat(timespec="seconds")
    record.update(ended=ended)
    return run


def commit_rows(lake: LocalStorage, committer: Any, state: Any, rows: int, stream: str = "s") -> None:
    """Commit a file that claims so many rows."""
    name = f"part-{committer.generation:010d}-{committer.snapshot.n:06d}-{'0' * 32}.parquet"
    pipeline = committer.log.pipeline
    source = f".bridge/{pipeline}/pending/{name}.pending"
    file = lake.open_pending(source, f"{pipeline}/{stream}/{name}")
    file.write(b"rows")
    file.close()
    adds = [{"name": name, "source": source, "size": 4, "rows": rows}]
    committer.commit(PipelineState(state), [table_change(adds, stream=stream, folder=f"{pipeline}/{stream}")])


def _copy(bridge: Path, name: str) -> None:
    """Give another pipeline the records of the first."""
    for folder in ("runs", "commits"):
        (bridge / name / folder).mkdir(parents=True)
        for path in (bridge / FIRST / folder).iterdir():
            (bridge / name / folder / path.name).write_bytes(path.read_bytes().replace(FIRST.encode(), name.encode()))
    for path in (bridge / FIRST).glob("*.json"):
        (bridge / name / path.name).write_bytes(path.read_bytes().replace(FIRST.encode(), name.encode()))
    head = max(int(path.stem) for path in (bridge / name / "commits").iterdir())
    (bridge / name / "lease.json").write_text(json.dumps({"format": 1, "head": head, "closed": head}))
