"""OpenLineage events are what OpenLineage's own client reads, and name the commit."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import attr
import pytest
from openlineage.client.generated import base
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet

from bridge.lake.runs import RunFile, read_run
from bridge.serve.facts.after_run import after_run
from bridge.serve.facts.lineage import Lineage, end_event, start_event
from bridge.settings.load import load
from bridge.settings.receivers import OpenLineage
from tests.support.receiver import receiver
from tests.support.service import until
from tests.support.tables import INTEGER, Shop


def test_events_of_a_run(tmp_path: Path) -> None:
    """A start and an end with one run id; the table's version is the commit at which it has these rows."""
    shop = Shop(tmp_path)
    commit = shop.load("orders", {"id": INTEGER}, [{"id": 1}, {"id": 2}])
    facts = {"streams": {"orders": {"records": 2, "bytes": 10}}, "tap": "tap-x", "commit": commit.n}
    RunFile(shop.storage, "shop", commit.run).finish(status="success", **facts)
    with receiver() as server:
        (tmp_path / "bridge.yaml").write_text(f"""
pipelines:
  shop:
    source: {{tap: tap-x}}
    destination: {{bucket: lake}}
    openlineage: {{url: "http://127.0.0.1:{server.port}/api/v1/lineage", namespace: team}}
""")
        pipeline = load(tmp_path / "bridge.yaml", {}).pipeline("shop")
        assert after_run(shop.storage, pipeline, commit.run) == []
        start, end = server.bodies
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"] == {"namespace": "team", "name": "shop"}
    assert [each["name"] for each in end["inputs"]] == ["orders"]
    (output,) = end["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == str(commit.n)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["id"]
    for event in (start, end):  # its classes check the run's id, times and URLs
        base.RunEvent(
            eventType=base.EventType(event["eventType"]),
            eventTime=event["eventTime"],
            run=base.Run(runId=event["run"]["runId"]),
            job=base.Job(**event["job"]),
            producer=event["producer"],
        )
    assert DatasetVersionDatasetFacet(datasetVersion=output["facets"]["version"]["datasetVersion"])._schemaURL.endswith(
        output["facets"]["version"]["_schemaURL"].rpartition("/")[2]
    )


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ({"status": "success"}, "COMPLETE"),
        ({"status": "failed", "error": {"type": "TapError", "message": "no", "hint": "look"}}, "FAIL"),
        ({"status": "interrupted", "error": {"type": "Interrupted", "message": "SIGTERM", "hint": ""}}, "ABORT"),
    ],
)
def test_whole_events_are_those_of_the_client(tmp_path: Path, outcome: dict[str, Any], kind: str) -> None:
    """Each object of the events has the fields, and each facet the version, of OpenLineage's own client; none more."""
    shop = Shop(tmp_path)
    commit = shop.load("orders", {"id": INTEGER}, [{"id": 1}])
    facts = {"streams": {"orders": {"records": 1, "bytes": 10}}, "tap": "tap-x", "commit": commit.n}
    RunFile(shop.storage, "shop", commit.run).finish(**facts, **outcome)
    record = read_run(shop.storage, "shop", commit.run)
    assert record
    start = start_event(shop.storage, "shop", record.run_id, record.started, "team")
    end = end_event(shop.storage, record, "team")
    assert (start["eventType"], end["eventType"]) == ("START", kind)
    assert set(end["run"].get("facets", {})) == ({"errorMessage"} if "error" in outcome else set())
    for event in (start, end):
        assert set(event) <= {field.alias for field in attr.fields(base.RunEvent)}
        assert event["schemaURL"] == base.RunEvent._get_schema()
        assert datetime.fromisoformat(event["eventTime"]).tzinfo
        checked(event["run"], base.Run)
        checked(event["job"], base.Job)
        for dataset in event["inputs"]:
            checked(dataset, base.InputDataset)
        for dataset in event["outputs"]:
            checked(dataset, base.OutputDataset)


def checked(value: dict[str, Any], kind: Any) -> None:
    """Make OpenLineage's object of a part of an event: it refuses unknown and missing fields, and wrong ids."""
    made = kind(**value)
    for name in ("facets", "inputFacets", "outputFacets"):
        for facet in getattr(made, name, {}).values():
            module = re.sub(
                r"(?<!^)(?=[A-Z])", "_", facet["_schemaURL"].rpartition("/")[2].removesuffix("Facet")
            ).lower()
            client = import_module(f"openlineage.client.generated.{module}")
            facet_kind = getattr(client, facet["_schemaURL"].rpartition("/")[2])
            facet_kind(**{key.lstrip("_"): part for key, part in facet.items() if key != "_schemaURL"})
            assert facet["_schemaURL"] == facet_kind._get_schema()


def test_another_run_s_commit_is_not_named(tmp_path: Path) -> None:
    """The lease is given back when events are sent: what another run has committed since is not this run's."""
    shop = Shop(tmp_path)
    commit = shop.load("orders", {"id": INTEGER}, [{"id": 1}])
    facts = {"streams": {"orders": {"records": 1}}, "tap": "tap-x", "commit": commit.n}
    RunFile(shop.storage, "shop", commit.run).finish(status="success", **facts)
    shop.load("orders", {"id": INTEGER, "late": INTEGER}, [{"id": 2}])
    record = read_run(shop.storage, "shop", commit.run)
    assert record
    (output,) = end_event(shop.storage, record, "team")["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == str(commit.n)
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["id"]


def test_the_end_is_sent_if_the_start_is_refused(tmp_path: Path) -> None:
    """The receiver's refusal is an error in any case."""
    shop = Shop(tmp_path)
    RunFile(shop.storage, "shop", "run").finish(status="success")
    record = read_run(shop.storage, "shop", "run")
    assert record
    with receiver(400) as server:
        lineage = Lineage(OpenLineage(url=f"http://127.0.0.1:{server.port}/", namespace="team"))
        with pytest.raises(HTTPError, match="400"):
            lineage.end(shop.storage, record)
    assert [body["eventType"] for body in server.bodies] == ["START", "COMPLETE"]


def test_a_name_and_password_in_the_url(tmp_path: Path) -> None:
    """They are sent as Basic authorization, as every other client of HTTP does."""
    shop = Shop(tmp_path)
    RunFile(shop.storage, "shop", "run").finish(status="success")
    record = read_run(shop.storage, "shop", "run")
    assert record
    with receiver() as server:
        url = f"http://me:pa%3Ass%40word@127.0.0.1:{server.port}/lineage?x=1"
        assert Lineage(OpenLineage(url=url, namespace="team")).end(shop.storage, record)
    assert server.authorizations == [f"Basic {b64encode(b'me:pa:ss@word').decode()}"] * 2


def test_the_start_is_sent_once_while_the_run_works(tmp_path: Path) -> None:
    """A receiver shows the run as running; the end follows with the same id."""
    shop = Shop(tmp_path)
    file = RunFile(shop.storage, "shop", "run")
    with receiver() as server:
        lineage = Lineage(OpenLineage(url=f"http://127.0.0.1:{server.port}/", namespace="team"))
        lineage.begin(shop.storage, "shop", "run")
        until(lambda: server.bodies)
        file.finish(status="success")
        record = read_run(shop.storage, "shop", "run")
        assert record
        assert lineage.end(shop.storage, record)
    start, end = server.bodies
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]


def test_a_start_that_nobody_took_is_sent_again(tmp_path: Path) -> None:
    """A receiver that was down when the run began gets both events at its end."""
    shop = Shop(tmp_path)
    RunFile(shop.storage, "shop", "run").finish(status="success")
    record = read_run(shop.storage, "shop", "run")
    assert record
    with receiver(503) as down:
        port = down.port
        lineage = Lineage(OpenLineage(url=f"http://127.0.0.1:{port}/", namespace="team"))
        lineage.begin(shop.storage, "shop", "run")
        down.status = 200
        assert lineage.end(shop.storage, record)
    assert [body["eventType"] for body in down.bodies] == ["START", "START", "COMPLETE"]
