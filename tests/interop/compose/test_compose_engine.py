"""docker compose for real: the Dockerfile is built, and each service of docker-compose.yml runs, on an engine here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.interop.compose import standins
from tests.interop.compose.engine import Engine
from tests.support.s3server import ROOT

OVERRIDE = {"services": {"bridge": {"build": {"network": "host"}}}}
"""The engine forwards nothing, so what is built asks registries by the network of this machine."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine for which `docker compose` finds our file."""
    with Engine() as engine:
        standins.provide(engine)
        override = tmp_path_factory.mktemp("compose") / "override.json"
        override.write_text(json.dumps(OVERRIDE))
        engine.environ |= {"COMPOSE_FILE": f"{ROOT / 'docker-compose.yml'}:{override}"}
        forget = ("compose", "--profile", "*", "down", "--volumes", "--timeout", "30")
        engine.docker(*forget)  # what a killed test left starts again with the engine
        yield engine
        engine.docker(*forget)


@pytest.mark.timeout(7200)
def test_the_script_of_ci(engine: Engine) -> None:
    """Cluster and service come up, two loads are counted; all stops, starts again, and nothing is there twice."""
    done = subprocess.run(
        ["sh", ROOT / ".ci/compose"], env=engine.environ, capture_output=True, text=True, timeout=6600, check=False
    )
    logs = "" if done.returncode == 0 else engine.docker("compose", "logs", "--no-color", "--tail", "100")
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}\n{logs}"
