"""docs/service.md: what it gives to copy is what systemd and Kubernetes read."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from bridge.cli.run.serve import serve
from bridge.serve.service.web.app import make_app
from bridge.settings.load import read_settings
from tests.unit.serve.service.web.conftest import Waiting

TEXT = (Path(__file__).parents[3] / "docs/service.md").read_text()


def block(name: str) -> str:
    """The fenced block of that name."""
    match = re.search(rf'^```[^\n]* name="{re.escape(name)}"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL)
    assert match, name
    return match[1]


def flags_exist(words: list[str]) -> None:
    """The command is `serve` with flags that it, or every verb, has."""
    flags = {opt for parameter in serve.params for opt in parameter.opts} | {"--log-format"}
    at = words.index("serve")
    assert words[at - 1].endswith("singer-bridge")
    assert {word for word in words[at + 1 :] if word.startswith("--")} <= flags


def test_systemd() -> None:
    """The unit starts the service again, and leaves its runs time for their last commit."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block("singer-bridge.service"))
    service = unit["Service"]
    assert (service["Restart"], service["KillMode"]) == ("always", "mixed")
    assert int(service["TimeoutStopSec"]) >= 60
    flags_exist(service["ExecStart"].split())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """systemd itself finds nothing wrong in it."""
    text = block("singer-bridge.service").replace("/srv/shop/.venv/bin/singer-bridge", "/bin/true")
    file = tmp_path / "singer-bridge.service"
    file.write_text(text.replace("User=shop", "User=root").replace("/srv/shop", "/"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "singer-bridge." in line] == []


def test_kubernetes() -> None:
    """One pod, never two, whose mounts are volumes that it has, and which leaves time for the last commit."""
    deployment: dict[str, Any] = next(yaml.safe_load_all(block("kubernetes")))
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] >= 60
    flags_exist(container["args"])


def test_kubernetes_reaches_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Service leads to the port at which the page listens, on all addresses, with a token; probes need none."""
    deployment, service = yaml.safe_load_all(block("kubernetes"))
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    (public,) = service["spec"]["ports"]
    assert service["spec"]["selector"] == template["metadata"]["labels"]
    assert public["targetPort"] == port["name"]
    probes = [container[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert probes == [{"path": "/healthz", "port": port["name"]}] * 3
    monkeypatch.setenv("SINGER_BRIDGE_TOKEN", "a token from the secret")
    pipelines = "pipelines: {shop: {source: {tap: tap-x}, destination: {bucket: lake}}}\n"
    (tmp_path / "bridge.yaml").write_text(block("kubernetes-settings") + pipelines)
    settings = read_settings(tmp_path / "bridge.yaml", None).service
    assert (settings.host, settings.port, settings.token) == (
        "0.0.0.0",
        port["containerPort"],
        "a token from the secret",
    )
    app = make_app(tmp_path / "bridge.yaml", None, Waiting(), host=settings.host, token=settings.token)
    with TestClient(app, base_url="http://10.0.0.7:8765") as client:
        assert client.get(probes[0]["path"]).status_code == 200
        bearer = {"authorization": f"Bearer {settings.token}"}
        assert client.get("/metrics", headers=bearer).status_code == 200
        assert client.get("/metrics", follow_redirects=False).status_code == 401
