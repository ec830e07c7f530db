"""OpenLineage events of a run: that it began; what it read, which tables it wrote, the commit at which they stand.

https://openlineage.io/spec/2-0-2/OpenLineage.json. The version of a dataset is the commit's number, so that
`bridge.Lake(uri, at=version)` reads exactly what the event tells of.
"""

from __future__ import annotations

import threading
import uuid
from base64 import b64encode
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit
from urllib.request import Request, urlopen

import orjson

from bridge.lake.log import Log
from bridge.lake.runs import RunRecord
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.settings.receivers import OpenLineage

if TYPE_CHECKING:
    from bridge.load.run.run import Run

_PRODUCER = "https://pypi.org/project/singer-bridge"
_SPEC = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_TIMEOUT = 8.0
_ENDS = {"success": "COMPLETE", "failed": "FAIL"}


def start_event(storage: Storage, pipeline: str, run_id: str, started: str, namespace: str) -> dict[str, Any]:
    """The event of a run's start."""
    return _event("START", started, {"runId": _uuid(storage, run_id)}, {"namespace": namespace, "name": pipeline})


def end_event(storage: Storage, record: RunRecord, namespace: str) -> dict[str, Any]:
    """The event of a run's end. Raises `LakeError`."""
    run: dict[str, Any] = {"runId": _uuid(storage, record.run_id)}
    ended = record.ended or _now()
    if record.error:
        message = {"message": record.error.message, "programmingLanguage": "PYTHON"}
        run["facets"] = {"errorMessage": _facet("1-0-1/ErrorMessageRunFacet.json", message)}
    end = _event(_ENDS.get(record.status, "ABORT"), ended, run, {"namespace": namespace, "name": record.pipeline})
    streams = sorted(name for name, stream in record.streams.items() if stream.records)
    source = record.tap or "singer-tap"
    end["inputs"] = [{"namespace": source, "name": stream} for stream in streams]
    end["outputs"] = _outputs(storage, record, streams)
    return end


def _uuid(storage: Storage, run_id: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{storage.uri}#{run_id}"))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _outputs(storage: Storage, record: RunRecord, streams: list[str]) -> list[dict[str, Any]]:
    """The tables as they were after the run's last commit: by now another run may have committed more."""
    if record.commit is None:
        return []
    snapshot = Log(storage, record.pipeline).snapshot(record.commit)
    outputs = list[dict[str, Any]]()
    for stream in streams:
        table = snapshot.stream_tables.get(stream)
        if table is None:
            continue
        facets = {"version": _facet("1-0-1/DatasetVersionDatasetFacet.json", {"datasetVersion": str(snapshot.n)})}
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


class Lineage:
    """Sends the events of one run: the start, while it works; then `end`."""

    def __init__(self, settings: OpenLineage) -> None:
        self._settings = settings
        self._beginning: threading.Thread | None = None
        self._has_begun = False

    def follow(self, run: Run) -> None:
        """Send the start once the run has its record, in a thread: nobody waits for the receiver."""

        def begin() -> None:
            if storage := run.recorded():
                self.begin(storage, run.pipeline.name, run.result.run_id)

        self._beginning = threading.Thread(target=begin, name="openlineage", daemon=True)
        self._beginning.start()

    def begin(self, storage: Storage, pipeline: str, run_id: str) -> None:
        """Send the start. If that fails, `end` sends it again."""
        with suppress(OSError):
            self._post(start_event(storage, pipeline, run_id, _now(), self._settings.namespace))
            self._has_begun = True

    def end(self, storage: Storage, record: RunRecord) -> bool:
        """Send the end, also if the start is refused. Raises `OSError` if the receiver does not take one of them."""
        if self._beginning:
            self._beginning.join()
        namespace, refusals = self._settings.namespace, list[OSError]()
        events = (
            [] if self._has_begun else [start_event(storage, record.pipeline, record.run_id, record.started, namespace)]
        )
        for event in [*events, end_event(storage, record, namespace)]:
            try:
                self._post(event)
            except OSError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return True

    def _post(self, event: dict[str, Any]) -> None:
        parts = urlsplit(self._settings.url)
        user, _, host = parts.netloc.rpartition("@")
        url = urlunsplit(parts._replace(netloc=host))
        request = Request(url, orjson.dumps(event), {"Content-Type": "application/json"})  # noqa: S310 - checked: http
        if user:  # no other host gets it: a redirection leaves it out
            request.add_unredirected_header("Authorization", f"Basic {b64encode(unquote_to_bytes(user)).decode()}")
        try:
            with urlopen(request, timeout=_TIMEOUT):  # noqa: S310
                pass
        except HTTPError as error:
            error.close()
            raise
