"""Airflow 3 and 2 from PyPI run pipelines by the operator: in one environment with us, and in one of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.lake.lease import holder
from bridge.lake.storage.local.storage import LocalStorage
from tests.interop.orchestrators.shop import OWN, SLEEPER, ToolProject, clean_environ, tap, until
from tests.interop.orchestrators.test_dagster import held
from tests.interop.readers.venvs import venv_with
from tests.support.s3server import ROOT

pytestmark = pytest.mark.timeout(1200)

THREE, TWO = "apache-airflow==3.3.2", "apache-airflow==2.11.2"


def python_of(airflow: str) -> Path:
    """Airflow 2 needs SQLAlchemy 1, and the Singer SDK SQLAlchemy 2: there singer-bridge is for its operator alone."""
    if airflow == THREE:
        return venv_with(THREE, *OWN)
    python, uv = venv_with(TWO), Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *OWN], check=True)
    return python


_DAG = """
import json
from datetime import datetime
from pathlib import Path

try:
    from airflow.sdk import DAG
except ImportError:
    from airflow import DAG
from bridge.serve.orchestrate.airflow import RunPipelineOperator

command = {command!r}


def noted(context):
    found = context["ti"].xcom_pull(task_ids="load")
    Path({xcom!r}).write_text(json.dumps(found[0] if isinstance(found, list) else found, default=str))


for name in ("shop", "broken", "slow", "unknown"):
    with DAG(name, schedule=None, start_date=datetime(2025, 1, 1)) as dag:
        RunPipelineOperator(
            task_id="load", pipeline=name, file={file!r}, command=command, on_held="skip",
            on_failure_callback=noted, on_success_callback=noted, on_skipped_callback=noted,
        )
    globals()[name] = dag
"""


@dataclass(frozen=True)
class Airflow(ToolProject):
    """A project with DAGs, one for each pipeline."""

    python: Path

    @property
    def environ(self) -> dict[str, str]:
        home = self.folder / "airflow"
        return {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        }

    @property
    def airflow(self) -> Path:
        return self.python.with_name("airflow")

    def test(self, pipeline: str) -> str:
        """What `airflow dags test` printed."""
        done = subprocess.run(
            [self.airflow, "dags", "test", pipeline, "2025-01-02"],
            cwd=self.folder,
            env=clean_environ() | self.environ,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done.stdout + done.stderr

    @property
    def xcom(self) -> Any:
        """What the last task left in XCom."""
        return json.loads((self.folder / "xcom.json").read_text())


@pytest.fixture(scope="module", params=[THREE, TWO], ids=["3", "2"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    shop = Airflow(tmp_path_factory.mktemp("airflow"), python_of(request.param))
    dags = shop.folder / "airflow/dags"
    dags.mkdir(parents=True)
    command = None if request.param == THREE else str(Path(sys.executable).with_name("singer-bridge"))
    names = {"command": command, "file": str(shop.folder / "bridge.yaml"), "xcom": str(shop.folder / "xcom.json")}
    (dags / "dags.py").write_text(_DAG.format(**names))
    shop.type(shop.airflow, "db", "migrate", environ=shop.environ)
    return shop


def test_a_pipeline(shop: Airflow) -> None:
    """The task succeeds when all is committed; XCom has what the lake has; the run's log is the task's."""
    shop.settle(shop={"source": tap()})
    printed = shop.test("shop")
    lake = bridge.Lake(shop.lake)
    run, facts = next(lake.runs("shop")), shop.xcom
    assert run.status == "success" and run.run_id in printed, printed[-3000:]
    assert (facts["run_id"], facts["status"], facts["commit"]) == (run.run_id, "success", lake.commit("shop"))
    assert (facts["rows"], facts["streams"]) == (110, {"orders": 100, "users": 10})
    assert lake.table("shop", "orders").count_rows() == 100


def test_failures(shop: Airflow) -> None:
    """A tap that fails ends the task with its reason; wrong settings are not tried again; a held one is skipped."""
    shop.settle(broken={"source": {"tap": ["sh", "-c", "echo no such table >&2; exit 1"]}}, shop={"source": tap()})
    printed = shop.test("broken")
    assert "no such table" in printed and shop.xcom["status"] == "failed" and shop.xcom["rows"] == 0
    assert next(bridge.Lake(shop.lake).runs("broken")).run_id == shop.xcom["run_id"]
    printed = shop.test("unknown")
    assert "AirflowFailException" in printed and "unknown pipeline" in printed
    with held(shop):
        printed = shop.test("shop")
    assert "AirflowSkipException" not in printed.split("Traceback")[-1] and "skipped" in printed.lower()
    assert "another run" in printed


def killed(shop: Airflow, number: signal.Signals, tap: dict[str, Any], begun: Callable[[], object]) -> str:
    """Kill the task once its run has begun; the run's status when the pipeline is free again."""
    shop.settle(slow={"source": tap})
    words, environ = [str(shop.airflow), "dags", "test", "slow", "2025-01-02"], clean_environ() | shop.environ
    with (shop.folder / "killed.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=shop.folder, env=environ, stdout=log, stderr=log)
        until(begun, process)
        os.kill(process.pid, number)
        process.wait(120)
    until(lambda: not holder(LocalStorage(shop.lake), "slow"))
    return str(next(bridge.Lake(shop.lake).runs("slow")).status)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_killed_task(number: signal.Signals, shop: Airflow) -> None:
    """A task that is killed, even without a word, ends the run, which is recorded as interrupted."""
    status = killed(shop, number, SLEEPER, lambda: holder(LocalStorage(shop.lake), "slow"))
    assert status == "interrupted", (shop.folder / "killed.log").read_text()[-3000:]


def test_a_killed_task_commits(shop: Airflow) -> None:
    """What the tap's last STATE covers is in the lake after that, and the next run loads the rest, each row once."""
    for folder in (shop.lake, shop.folder / ".singer-bridge"):
        shutil.rmtree(folder, ignore_errors=True)
    slow = tap(orders=3000, users=1, delay_ms=20, stderr_every=50, state={"every": 10})
    logs = (shop.folder / ".singer-bridge").rglob
    status = killed(
        shop, signal.SIGTERM, slow, lambda: any(b"50 records" in log.read_bytes() for log in logs("tap.log"))
    )
    assert status == "interrupted" and 0 < bridge.Lake(shop.lake).table("slow", "orders").count_rows() < 3000
    shop.settle(slow={"source": tap(orders=3000, users=1)})
    shop.bridge("run", "slow")
    ids = bridge.Lake(shop.lake).table("slow", "orders").to_table(columns=["id"])["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 3000


def test_the_module_imports_nothing_of_ours() -> None:
    """Airflow 2's environment has only our package, so the operator is alone in it."""
    text = (ROOT / "bridge/serve/orchestrate/airflow.py").read_text()
    assert "from bridge" not in text and "import bridge" not in text
