"""The same tap through the real engine, into a lake that is deleted afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.errors import BridgeError
from bridge.exact_json import dumps
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.operate.smoke.trial import Trial
from bridge.settings.values.request import Request


def check_load(trial: Trial, home: Path, folder: Path, stop: Stop) -> None:
    """Load what the trial selected into a lake in `folder`, and note what failed or was rejected."""
    pipeline = trial.source.pipeline
    destination = {"bucket": str(folder / "load"), "s3": None, "azure": None, "gcs": None, "shared": False}
    source: dict[str, Any] = {}
    if trial.catalog is not None:  # the load reads what the trial read
        source = {"catalog": folder / "catalog.json", "select": []}
        source["catalog"].write_bytes(dumps(trial.catalog))
    # the trial's catalog has what `streams` say about replication, and FULL_TABLE where they say LOG_BASED
    decided = {"replication_method": None, "replication_key": None}
    streams = {glob: keys.model_copy(update=decided) for glob, keys in pipeline.streams.items()}
    pipeline = pipeline.model_copy(
        update={
            "streams": streams if trial.catalog is not None else pipeline.streams,
            "source": pipeline.source.model_copy(update=source),
            "destination": pipeline.destination.model_copy(update=destination),
            "looks_up_in": pipeline.destination,
        }
    )
    request = Request(streams=trial.streams, max_records=trial.max_records if trial.capped else None)
    trial.verdicts.make("load")
    try:
        result = Run(pipeline, request, home, stop=stop, is_trial=True).execute()
    except BridgeError as error:
        trial.verdicts.fail("load", error.message, error.hint)
        return
    if result.error:
        trial.verdicts.fail("load", result.error.message, result.error.hint)
    for name, counts in result.streams.items():
        if counts.rejected:
            hint = "see `records` above; a run keeps these as rejects"
            text = f"{counts.rejected:,} of {counts.records:,} records were rejected"
            trial.verdicts.fail("load", text, hint, stream=name)
        elif not trial.capped and counts.committed != counts.records:
            text = f"{counts.records:,} records came, {counts.committed:,} rows are in the lake"
            trial.verdicts.fail("load", text, "please report this", stream=name)
