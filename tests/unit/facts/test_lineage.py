"""OpenLineage events are what OpenLineage's own client reads, and name the commit."""

from __future__ import annotations

from pathlib import Path

from openlineage.client.generated import base
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet

from bridge.facts.after_run import after_run
from bridge.lake.runs import RunFile
from bridge.settings.load import load
from tests.support.receiver import receiver
from tests.support.tables import INTEGER, Shop


def test_events_of_a_run(tmp_path: Path) -> None:
    """A start and an end with one run id; the table's version is the commit at which it has these rows."""
    shop = Shop(tmp_path)
    commit = shop.load("orders", {"id": INTEGER}, [{"id": 1}, {"id": 2}])
    facts = {"streams": {"orders": {"records": 2, "bytes": 10}}, "tap": "tap-x"}
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
