"""A Docker engine of the tests' own, with docker compose: an engine that this machine may have is left alone.

The engine is Debian's; docker compose is built by Go. Images stay in `.interop/docker`, so a second run is a fast one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.interop.loopback import started
from tests.support.debian import debian_program
from tests.support.s3server import ROOT

_HOME = ROOT / ".interop"
_COMPOSE, _VERSION = "github.com/docker/compose/v2", "v2.40.3"
_NETWORKS = "base=198.18.240.0/20,size=24"
"""Where containers get their addresses: where no machine's are."""


def compose_program() -> Path:
    """The plugin `docker compose`. The first call takes Go and some minutes."""
    program = _HOME / f"docker-compose-{_VERSION}"
    if not program.exists():
        assert shutil.which("go"), "make interop builds docker compose: install Go 1.24 or later"
        download = ["go", "mod", "download", "-json", f"{_COMPOSE}@{_VERSION}"]
        module = json.loads(subprocess.run(download, stdout=subprocess.PIPE, check=True).stdout)
        with tempfile.TemporaryDirectory() as folder:  # `go install` takes no module whose go.mod replaces others
            source = Path(folder) / "compose"
            shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
            source.chmod(0o755)
            version = f"-X {_COMPOSE}/internal.Version={_VERSION}"
            subprocess.run(["go", "build", "-ldflags", version, "-o", program, "./cmd"], cwd=source, check=True)
    return program


class Engine:
    """The engine while the block runs, from the side of a test."""

    def __enter__(self) -> Engine:
        if not sys.platform.startswith("linux") or os.geteuid():
            pytest.skip("an engine of our own needs Linux, and root")
        daemon = debian_program("dockerd", "docker.io")
        self._folder = tempfile.TemporaryDirectory(prefix="engine-")
        here = Path(self._folder.name)
        plugin = here / "config/cli-plugins/docker-compose"
        plugin.parent.mkdir(parents=True)
        plugin.symlink_to(compose_program())
        socket = f"unix://{here}/docker.sock"
        self.environ = os.environ | {"DOCKER_HOST": socket, "DOCKER_CONFIG": str(here / "config")}
        # No rules of a firewall, no forwarding: containers of one network hear each other without either.
        network = ("--bridge=none", "--iptables=false", "--ip-masq=false", "--ip-forward=false")
        folders = (f"--data-root={_HOME / 'docker'}", f"--exec-root={here / 'run'}", f"--pidfile={here / 'pid'}")
        words = [daemon, "--host", socket, *folders, *network, "--default-address-pool", _NETWORKS]
        self._daemon = started(words, os.environ)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._daemon.terminate()
        self._daemon.wait(timeout=120)
        for place in psutil.disk_partitions(all=True):  # of containers' networks, which it leaves mounted
            if place.mountpoint.startswith(self._folder.name):
                subprocess.run(["umount", place.mountpoint], check=True)
        self._folder.cleanup()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", "info"], env=self.environ, capture_output=True, check=False).returncode:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                pytest.skip("no Docker engine starts on this machine")
            time.sleep(0.5)

    def docker(self, *words: str | Path, seconds: float = 600) -> str:
        """Run a command of docker; return what it prints. If it fails, all that it said is in the error."""
        done = subprocess.run(
            ["docker", *words], env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"docker {' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
        return done.stdout
