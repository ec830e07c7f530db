"""The compose file by docker compose's own library: it is valid in each profile, and settings get where they belong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.interop.compose.resolved import ROOT, Refused, resolved

FILE = "docker-compose.yml"
ALWAYS = {"bridge", "flights", "postgres", "spark-master", "spark-worker-1", "spark-worker-2"}
IN_S3 = {"minio", "minio-bucket"}
SECRETS = {
    "POSTGRES_PASSWORD": {"postgres.POSTGRES_PASSWORD", "flights.PGPASSWORD"},
    "READER_PASSWORD": {"flights.READER_PASSWORD", "bridge.READER_PASSWORD"},
    "SERVICE_TOKEN": {"bridge.SERVICE_TOKEN"},
    "MINIO_ROOT_USER": {
        "minio.MINIO_ROOT_USER",
        *(f"{name}.AWS_ACCESS_KEY_ID" for name in ("bridge", "minio-bucket", "spark-worker-1", "spark-worker-2")),
    },
    "MINIO_ROOT_PASSWORD": {
        "minio.MINIO_ROOT_PASSWORD",
        *(f"{name}.AWS_SECRET_ACCESS_KEY" for name in ("bridge", "minio-bucket", "spark-worker-1", "spark-worker-2")),
    },
}
"""Where each variable that a user may set has to arrive: as which variable of which service."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the compose file, which a test may change."""
    shutil.copy(ROOT / FILE, tmp_path)
    return tmp_path


def _arrivals(project: dict[str, Any], value: str) -> set[str]:
    return {
        f"{name}.{variable}"
        for name, service in project["services"].items()
        for variable, text in (service.get("environment") or {}).items()
        if text == value
    }


def test_every_profile_is_valid() -> None:
    """The s3 part is left out unless it is asked for."""
    assert set(resolved(ROOT)["services"]) == ALWAYS
    assert set(resolved(ROOT, "s3")["services"]) == set(resolved(ROOT, "*")["services"]) == ALWAYS | IN_S3


def test_without_settings_nothing_is_empty() -> None:
    """Each variable has a value without an .env."""
    for name, service in resolved(ROOT, "s3")["services"].items():
        assert all((service.get("environment") or {"": "-"}).values()), name


def test_the_variables_are_those_of_this_test() -> None:
    """Those that the file refers to, a doubled $ left out."""
    assert set(re.findall(r"(?<!\$)\$\{(\w+)", (ROOT / FILE).read_text())) == set(SECRETS)


@pytest.mark.parametrize("variable", SECRETS)
def test_a_setting_arrives_everywhere(folder: Path, variable: str) -> None:
    """By an .env beside the file, or by the environment, which comes before it. Nothing else changes."""
    (folder / ".env").write_text(f"{variable}=FromTheFile1\n")
    by_file = resolved(folder, "s3")
    assert _arrivals(by_file, "FromTheFile1") == SECRETS[variable]
    by_both = resolved(folder, "s3", **{variable: "FromOutside2"})
    assert (_arrivals(by_both, "FromOutside2"), _arrivals(by_both, "FromTheFile1")) == (SECRETS[variable], set())
    (folder / ".env").unlink()
    plain = resolved(folder, "s3")["services"]
    for name, service in plain.items():
        for place in SECRETS[variable]:
            owner, _, key = place.partition(".")
            if owner == name:
                service["environment"][key] = "FromOutside2"
    assert plain == by_both["services"]


def test_a_shell_s_variables_are_left_to_the_shell() -> None:
    """The keys of the store are filled in by the container, not by docker compose."""
    (script,) = resolved(ROOT, "s3")["services"]["minio-bucket"]["entrypoint"][2:]
    assert '"$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY"' in script


def test_what_yaml_merges_is_whole() -> None:
    """Both workers are the same, and have what the driver has for S3."""
    services = resolved(ROOT)["services"]
    one, two, driver = (services[name] for name in ("spark-worker-1", "spark-worker-2", "bridge"))
    assert one == two
    keys = {name: value for name, value in driver["environment"].items() if name.startswith("AWS_")}
    assert len(keys) == 3
    assert one["environment"] == keys | {"SPARK_DAEMON_MEMORY": "256m"}


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("stop_grace_period: 3m", "stop_grace_period: soon", "invalid duration"),
        ("pull_policy: never", "pull_polcy: never", "pull_polcy"),
        ("- lake:/lake", "- like:/lake", "undefined volume like"),
        ("      flights:\n        condition", "      flight:\n        condition", "undefined service"),
        ("condition: service_healthy", "condition: service_happy", "condition"),
        ("${SERVICE_TOKEN:-singer-bridge-demo}", "${SERVICE_TOKEN:-demo", "invalid interpolation"),
        ("127.0.0.1:8765:8765", "127.0.0.1:8765:port", "port"),
    ],
)
def test_the_library_does_look(folder: Path, right: str, wrong: str, reason: str) -> None:
    """A file with a fault is refused: so "valid" above means something."""
    text = (folder / FILE).read_text()
    assert right in text
    (folder / FILE).write_text(text.replace(right, wrong))
    with pytest.raises(Refused, match=reason):
        resolved(folder, "s3")
