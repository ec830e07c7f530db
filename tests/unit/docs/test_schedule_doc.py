"""docs/running.md: what it gives to copy is what the schedulers read."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.cli.run.run import run
from bridge.settings.values.cron import check_cron

TEXT = (Path(__file__).parents[3] / "docs/running.md").read_text()
EVERY_TWO_HOURS = "0 */2 * * *"


def block(name: str) -> str:
    """The fenced block of that name."""
    found = re.search(rf'^```[^\n]* name="{re.escape(name)}"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def flags_exist(words: list[str]) -> None:
    """The command is `run NAME` with flags that it has."""
    at = words.index("run")
    assert words[at - 1].endswith("singer-bridge")
    known = {opt for parameter in run.params for opt in parameter.opts}
    assert {word for word in words[at + 1 :] if word.startswith("--")} <= known


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block(name))
    return parser


def test_systemd() -> None:
    """The two units are whole: the service runs once, and the timer starts it every two hours."""
    service, timer = unit("shop.service"), unit("shop.timer")
    assert service["Service"]["Type"] == "oneshot"
    assert service["Service"]["SuccessExitStatus"] == "4"
    flags_exist(service["Service"]["ExecStart"].split())
    assert timer["Timer"]["OnCalendar"] == "*-*-* 00/2:00:00"
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """systemd itself finds nothing wrong in them, and reads the timer's calendar."""
    for name in ("shop.service", "shop.timer"):
        text = block(name).replace("/srv/shop/.venv/bin/singer-bridge", "/bin/true").replace("User=shop", "User=root")
        (tmp_path / name).write_text(text.replace("/srv/shop", "/"))
    files = [str(tmp_path / name) for name in ("shop.service", "shop.timer")]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "shop." in line]
    assert complaints == []
    subprocess.run(["systemd-analyze", "calendar", "*-*-* 00/2:00:00"], capture_output=True, check=True)


def test_airflow() -> None:
    """The DAG is Python, its schedule one of cron, and its command one of ours."""
    tree = ast.parse(block("airflow"))
    compile(tree, "dag.py", "exec")
    calls = {
        node.func.id: node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    dag = {word.arg: word.value for word in calls["DAG"].keywords}
    load = {word.arg: word.value for word in calls["BashOperator"].keywords}
    assert check_cron(ast.literal_eval(dag["schedule"])) == EVERY_TWO_HOURS
    assert ast.literal_eval(load["skip_on_exit_code"]) == 4
    flags_exist(ast.literal_eval(load["bash_command"]).split())


def test_kubernetes() -> None:
    """The manifest is a CronJob whose mounts are volumes that it has, and which leaves time for the last commit."""
    job: dict[str, Any] = yaml.safe_load(block("kubernetes"))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert check_cron(job["spec"]["schedule"]) == EVERY_TWO_HOURS
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] >= 60
    flags_exist(container["args"])


def test_github_actions() -> None:
    """The workflow has a schedule, never runs beside itself, and each step either uses an action or runs a command."""
    workflow: dict[Any, Any] = yaml.safe_load(block("actions"))
    triggers = workflow[True]  # `on` is a truth value to YAML 1.1
    assert check_cron(triggers["schedule"][0]["cron"]) == EVERY_TWO_HOURS
    assert workflow["concurrency"]["cancel-in-progress"] is False
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    flags_exist(next(step["run"] for step in job["steps"] if " run shop" in step.get("run", "")).split())
