"""Dagster from PyPI materializes the streams of real pipelines, by its command line and by its Python API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import bridge
from bridge.lake.lease import holder
from bridge.lake.storage.local.storage import LocalStorage
from tests.interop.orchestrators.shop import OWN, SLEEPER, ToolProject, clean_environ, tap, until
from tests.interop.readers.venvs import venv_with

pytestmark = pytest.mark.timeout(900)

PACKAGES = ("dagster==1.13.28", *OWN)
_DEFS = """
from dagster import Definitions
from bridge.serve.orchestrate.dagster import assets
defs = Definitions(assets=assets())
"""
_MATERIALIZE = """
import json, sys
from dagster import AssetKey, DagsterInstance, materialize
from bridge.serve.orchestrate.dagster import assets
pipeline, config, *streams = json.loads(sys.argv[1])
defs = assets("bridge.yaml", pipeline)
(op,) = [one.op.name for one in defs]
selection = [AssetKey([pipeline, one]) for one in streams] or None
done = materialize(defs, instance=DagsterInstance.get(), selection=selection, raise_on_error=False,
                   run_config={"ops": {op: {"config": config}}})
failures = [event.event_specific_data for event in done.get_step_failure_events()]
events = done.asset_materializations_for_node(op)
print(json.dumps({
    "success": done.success,
    "assets": {"/".join(event.asset_key.path): {name: str(value.value) for name, value in event.metadata.items()} |
               {"version": event.tags.get("dagster/data_version")} for event in events},
    "failures": [{"text": one.user_failure_data.description, "facts": {name: str(value.value) for name, value in
                  one.user_failure_data.metadata.items()}} for one in failures],
}))
"""
_RECORDED = """
import json
from dagster import AssetKey, DagsterInstance
event = DagsterInstance.get().get_latest_materialization_event(AssetKey(["shop", "orders"]))
print(json.dumps({name: str(value.value) for name, value in event.asset_materialization.metadata.items()}))
"""


class Dagster(ToolProject):
    """A project with Dagster's definitions."""

    @property
    def environ(self) -> dict[str, str]:
        return {"DAGSTER_HOME": str(self.folder / "home")}

    def materialize(self, pipeline: str, *streams: str, **config: Any) -> Any:
        """What Dagster's API says of a materialization of these streams, or of all."""
        given = json.dumps([pipeline, config, *streams])
        printed = self.type(venv_with(*PACKAGES), "-c", _MATERIALIZE, given, environ=self.environ)
        return json.loads(printed.splitlines()[-1])

    def rows(self, stream: str, pipeline: str = "shop") -> int:
        return int(bridge.Lake(self.lake).table(pipeline, stream).count_rows())


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Dagster:
    shop = Dagster(tmp_path_factory.mktemp("dagster"))
    (shop.folder / "home").mkdir()
    (shop.folder / "home/dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (shop.folder / "defs.py").write_text(_DEFS)
    return shop


VIEW = {"views": {"by_active": "SELECT active, count(*) AS n FROM orders GROUP BY active"}}


def test_materialized_by_the_command_line(shop: Dagster) -> None:
    """Each stream and view is an asset, and has the rows, the commit and the run of the lake in its metadata."""
    shop.settle(shop={"source": tap(), "stale_after": "6h", **VIEW})
    dagster = venv_with(*PACKAGES).with_name("dagster")
    failed = shop.type(dagster, "asset", "list", "-f", "defs.py", code=1, environ=shop.environ)
    assert "nobody knows the streams of this pipeline yet" in failed
    shop.bridge("discover", "shop")
    listed = shop.type(dagster, "asset", "list", "-f", "defs.py", environ=shop.environ).split()
    assert [one for one in listed if one.startswith("shop/")] == ["shop/by_active", "shop/orders", "shop/users"]
    shop.type(dagster, "asset", "materialize", "-f", "defs.py", "--select", "*", environ=shop.environ)
    assert (shop.rows("orders"), shop.rows("users")) == (100, 10)
    facts = json.loads(shop.type(venv_with(*PACKAGES), "-c", _RECORDED, environ=shop.environ).splitlines()[-1])
    lake = bridge.Lake(shop.lake)
    run = next(lake.runs("shop"))
    assert (facts["rows"], facts["dagster/row_count"]) == ("100", "100")
    assert (facts["run_id"], facts["commit"]) == (run.run_id, str(lake.commit("shop")))
    assert "TableColumn(name='id', type='int64'" in facts["dagster/column_schema"]
    assert float(facts["loaded_at"]) > 0 and "replication_key_value" in facts["bookmark"]


def test_one_stream_then_all_anew(shop: Dagster) -> None:
    """A selection loads only that stream; the version of a table that got no row stays; `full` loads all again."""
    shop.settle(shop={"source": tap(), **VIEW})
    shop.bridge("run", "shop")
    shop.settle(shop={"source": tap(orders=120, users=15), **VIEW})
    done = shop.materialize("shop", "users")
    assert done["success"] and done["assets"].keys() == {"shop/users"}
    assert (done["assets"]["shop/users"]["rows"], shop.rows("users"), shop.rows("orders")) == ("5", 15, 100)
    whole = shop.materialize("shop")
    assert whole["assets"].keys() == {"shop/users", "shop/orders", "shop/by_active"}
    assert (whole["assets"]["shop/orders"]["rows"], whole["assets"]["shop/users"]["rows"]) == ("20", "0")
    assert whole["assets"]["shop/users"]["version"] == done["assets"]["shop/users"]["version"]
    assert whole["assets"]["shop/orders"]["dagster/row_count"] == "120" and shop.rows("orders") == 120
    anew = shop.materialize("shop", "users", full=True)
    assert (anew["assets"]["shop/users"]["rows"], shop.rows("users"), shop.rows("orders")) == ("15", 15, 120)


def test_a_failed_run(shop: Dagster) -> None:
    """The failure has the message, the hint and the run; what is complete in the lake is materialized."""
    fails = tap(orders=40, users=10)
    fails["config"]["fail"] = {"at": 45}
    shop.settle(broken={"source": {**fails, "discover": "auto"}})
    shop.bridge("discover", "broken")
    done = shop.materialize("broken")
    ((failure,), run) = done["failures"], next(bridge.Lake(shop.lake).runs("broken"))
    assert not done["success"] and failure["facts"]["run_id"] == run.run_id
    assert run.error and failure["text"].startswith(run.error.message) and failure["facts"]["error"] == "TapError"
    complete = {f"broken/{name}" for name, stream in run.streams.items() if stream.complete}
    assert done["assets"].keys() == complete == {"broken/orders"} and shop.rows("orders", "broken") == 40


def test_a_held_pipeline(shop: Dagster) -> None:
    """A pipeline that another run holds is a failure with our message, and materializes nothing."""
    shop.settle(shop={"source": tap()})
    shop.bridge("discover", "shop")
    with held(shop):
        done = shop.materialize("shop", "users")
    ((failure,), run) = done["failures"], done["assets"]
    assert failure["facts"]["error"] == "PipelineHeld" and failure["facts"]["exit_code"] == "4" and not run


@contextmanager
def held(shop: ToolProject) -> Iterator[None]:
    """Another run has the pipeline `shop`."""
    from bridge.lake.lease import take

    lease = take(LocalStorage(shop.lake), "shop", "20200101T000000Z-aaaa")
    try:
        yield
    finally:
        lease.close(head=0, clean=False)


def test_a_run_that_is_terminated(shop: Dagster) -> None:
    """Dagster's interrupt ends the tap and the run, and the pipeline is free."""
    shop.settle(slow={"source": SLEEPER})
    (shop.folder / "slow.py").write_text(_DEFS.replace("assets()", 'assets(streams={"slow": ["orders"]})'))
    dagster = venv_with(*PACKAGES).with_name("dagster")
    words = [str(dagster), "asset", "materialize", "-f", "slow.py", "--select", "*"]
    environ, storage = clean_environ() | shop.environ, LocalStorage(shop.lake)
    with (shop.folder / "terminated.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=shop.folder, env=environ, stdout=log, stderr=log, start_new_session=True)
        until(lambda: holder(storage, "slow"), process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) != 0
    until(lambda: not holder(storage, "slow"))
    assert next(bridge.Lake(shop.lake).runs("slow")).status in ("interrupted", "failed")
