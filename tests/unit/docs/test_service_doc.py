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

from bridge.cli.run.serve import serve

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
    deployment: dict[str, Any] = yaml.safe_load(block("kubernetes"))
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["terminationGracePeriodSeconds"] >= 60
    flags_exist(container["args"])
