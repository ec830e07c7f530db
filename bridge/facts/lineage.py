"""OpenLineage events of a run: what it read, which tables it wrote, and the commit at which they stand.

https://openlineage.io/spec/2-0-2/OpenLineage.json. The version of a dataset is the commit's number, so that
`bridge.Lake(uri, at=version)` reads exactly what the event tells of.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson

from bridge.lake.log import Log
from bridge.lake.runs import RunRecord
from bridge.lake.schemas import read_schema
from bridge.storage import Storage

_PRODUCER = "https://pypi.org/project/singer-bridge"
_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_TIMEOUT = 8.0
_ENDS = {"success": "COMPLETE", "failed": "FAIL"}


def events(storage: Storage, record: RunRecord, namespace: str) -> list[dict[str, Any]]:
    """The event of the run's start, and of its end. Raises `LakeError`."""
    run: dict[str, Any] = {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{storage.uri}#{record.run_id}"))}
    job = {"namespace": namespace, "name": record.pipeline}
    start = _event("START", record.started, run, job)
    ended = record.ended or datetime.now(timezone.utc).isoformat(timespec="seconds")
    if record.error:
        message = {"message": record.error.message, "programmingLanguage": "PYTHON"}
        run = run | {"facets": {"errorMessage": _facet("1-0-1/ErrorMessageRunFacet.json", message)}}
    end = _event(_ENDS.get(record.status, "ABORT"), ended, run, job)
    streams = sorted(name for name, stream in record.streams.items() if stream.records)
    source = record.tap or "singer-tap"
    end["inputs"] = [{"namespace": source, "name": stream} for stream in streams]
    end["outputs"] = _outputs(storage, record, streams)
    return [start, end]


def _outputs(storage: Storage, record: RunRecord, streams: list[str]) -> list[dict[str, Any]]:
    """The tables as they were after the run's last commit: by now another run may have committed more."""
    if record.commit is None:
        return []
    view = Log(storage, record.pipeline).view(record.commit)
    outputs = list[dict[str, Any]]()
    for stream in streams:
        table = view.stream_tables.get(stream)
        if table is None:
            continue
        facets = {"version": _facet("1-0-1/DatasetVersionDatasetFacet.json", {"datasetVersion": str(view.n)})}
        if table.schema:
            columns = read_schema(storage, record.pipeline, table.schema).fields
            fields = [{"name": column.name, "type": str(column.type)} for column in columns]
            facets["schema"] = _facet("1-2-0/SchemaDatasetFacet.json", {"fields": fields})
        result = record.streams[stream]
        statistics = {"rowCount": result.records, "size": result.bytes}
        outputs.append(
            {
                "namespace": storage.uri,
                "name": table.folder,
                "facets": facets,
                "outputFacets": {
                    "outputStatistics": _facet("1-0-2/OutputStatisticsOutputDatasetFacet.json", statistics)
                },
            }
        )
    return outputs


def _event(kind: str, at: str, run: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": at,
        "run": run,
        "job": job,
        "inputs": [],
        "outputs": [],
        "producer": _PRODUCER,
        "schemaURL": _SPEC,
    }


def _facet(schema: str, facts: dict[str, Any]) -> dict[str, Any]:
    name = schema.rpartition("/")[2].removesuffix(".json")
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}/{schema}#/$defs/{name}", **facts}


def send(url: str, storage: Storage, record: RunRecord, namespace: str) -> bool:
    """Post both events, the start first; the end also if the start is refused.

    Raises `OSError` for a server that does not take one.
    """
    refusals = list[OSError]()
    for event in events(storage, record, namespace):
        request = Request(url, orjson.dumps(event), {"Content-Type": "application/json"})  # noqa: S310 - checked: http
        try:
            with urlopen(request, timeout=_TIMEOUT):  # noqa: S310
                pass
        except OSError as error:
            refusals.append(error)
            if isinstance(error, HTTPError):
                error.close()
    if refusals:
        raise refusals[0]
    return True
