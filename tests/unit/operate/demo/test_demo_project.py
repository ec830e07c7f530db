"""The demo's project folder, and how its commands end."""

from __future__ import annotations

import fcntl
import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from bridge.errors import BridgeError, PipelineHeld, SettingsError
from bridge.operate.demo import run_demo, story
from bridge.operate.demo.command import DemoProject
from bridge.operate.demo.project import bridge_yaml, with_replication, write_project


def test_bridge_yaml_names_the_lake(tmp_path: Path) -> None:
    """Whatever characters the lake's path has, the file is YAML and leads to it."""
    folder, lake = tmp_path / ".singer-bridge" / "demo", tmp_path / 'a "lake": #1'
    pipeline = yaml.safe_load(bridge_yaml(folder, lake))["pipelines"]["flights"]
    assert (folder / pipeline["destination"]["bucket"]).resolve() == lake
    assert pipeline["source"]["config"]["sqlalchemy_url"] == "${FLIGHTS_DATABASE_URL}"


def test_the_password_is_for_its_owner(tmp_path: Path) -> None:
    """The URL is only in .env, which nobody else can read, even if an older one is replaced."""
    for url in ("postgresql://reader:first@localhost/nyc", "postgresql://reader:second@localhost/nyc"):
        write_project(tmp_path, url, bridge_yaml(tmp_path, tmp_path / "lake"))
    assert "reader:second@" in (tmp_path / ".env").read_text()
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert "second" not in (tmp_path / "bridge.yaml").read_text()


def test_catalog_selects_and_says_how() -> None:
    """Flights become incremental, other streams full, in both places where taps look; columns stay as discovered."""
    column = {"breadcrumb": ["properties", "id"], "metadata": {"inclusion": "automatic"}}
    root = {"breadcrumb": [], "metadata": {"inclusion": "available"}}
    names = ("public-flights", "public-planes")
    discovered = {"streams": [{"tap_stream_id": name, "metadata": [column, root]} for name in names]}
    flights, planes = with_replication(discovered)["streams"]
    assert flights["metadata"][0] == column
    assert (flights["replication_method"], flights["replication_key"]) == ("INCREMENTAL", "updated_at")
    assert flights["metadata"][1]["metadata"]["replication-key"] == "updated_at"
    assert planes["metadata"][1]["metadata"] == {
        "inclusion": "available",
        "selected": True,
        "replication-method": "FULL_TABLE",
    }
    assert "replication_key" not in planes


def test_a_failed_command_ends_the_demo(tmp_path: Path) -> None:
    """The error names the command as a user types it, and the folder that remains."""
    project = DemoProject(tmp_path, Console(file=io.StringIO()))
    with pytest.raises(BridgeError, match="`singer-bridge no-such-verb flights` failed") as caught:
        project.run("no-such-verb", "flights")
    assert str(tmp_path) in caught.value.hint


def test_one_demo_at_a_time(tmp_path: Path) -> None:
    """A second demo in the same folder stops at once, before it touches anything."""
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PipelineHeld):
            run_demo(tmp_path, tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the demo says what to install and starts nothing."""
    monkeypatch.setattr(story, "EXTRA", ("no_such_package",))
    with pytest.raises(SettingsError, match="no_such_package") as caught:
        run_demo(tmp_path / "demo", tmp_path / "lake")
    assert 'singer-bridge[demo]"' in caught.value.hint
    assert not (tmp_path / "demo").exists()
