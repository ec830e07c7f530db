"""What verbs look at that speak of several pipelines: those of the file, of the bucket, or the one that was named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.cli.choose import Chosen, choose, choose_all, in_bucket
from bridge.errors import SettingsError
from bridge.lock import holder
from bridge.opening import lease_path
from bridge.runs import read_run
from bridge.settings.explain import did_you_mean
from bridge.storage import Storage, open_storage

__all__ = ["look_at", "settled"]


def look_at(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None) -> list[Chosen]:
    """Return the pipeline that was named, else all of the bucket or of the file.

    Raises `SettingsError` for a name that the file or the bucket does not have, and for a bucket without pipelines.
    """
    named = name or pipeline_name
    if to is None:
        names = [named] if named else []
        return choose_all(names, file, None, None, everything=not named)
    storage = open_storage(to)
    known = in_bucket(storage)
    if not known:
        raise SettingsError("there is no pipeline in this bucket", hint="check --to", bucket=storage.uri)
    if not named:
        return [choose(each, file, to, None) for each in known]
    chosen = choose(name, file, to, pipeline_name)
    if named not in known:
        hint = did_you_mean(named, known) or f"it has: {', '.join(known)}"
        raise SettingsError("no such pipeline in this bucket", hint=hint, pipeline=named, bucket=storage.uri)
    return [chosen]


def settled(storage: Storage, record: dict[str, Any]) -> dict[str, Any]:
    """Return a run's record with its true status: `died` for one that says `running` and holds nothing."""
    if record.get("status") != "running":
        return record
    live = holder(lease_path(storage, record["pipeline"])) or {}
    if live.get("run") == record["run_id"]:
        return record
    record = read_run(storage, record["pipeline"], record["run_id"]) or record  # it may have ended just now
    return record | {"status": "died"} if record["status"] == "running" else record
