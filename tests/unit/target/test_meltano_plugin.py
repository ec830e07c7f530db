"""What Meltano is told about `target-bridge`: made from what the target says, and what its hub would take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from target_bridge.origin import meltano_state
from target_bridge.plugin import about, plugin_files
from target_bridge.settings import ALIASES, CONFIG_JSONSCHEMA

from bridge.load.tap.stdin import Start

FOLDER = Path(__file__).parents[3] / "deploy" / "meltano"
KINDS = {"array", "boolean", "decimal", "integer", "object", "options", "string"}


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return plugin_files(about(), about("tap_bridge"))


def settings(text: str) -> dict[str, dict[str, Any]]:
    """The settings of a plugin's definition by their names."""
    return {entry["name"]: entry for entry in yaml.safe_load(text)["settings"]}


def test_the_shipped_files_are_those_of_the_target(files: dict[str, str]) -> None:
    """A setting that changes is in them. Else: `python -m target_bridge.plugin deploy/meltano` writes them anew."""
    shipped = {str(file.relative_to(FOLDER)): file.read_text() for file in FOLDER.rglob("*.yml")}
    assert shipped == files


def test_every_setting_is_there_once(files: dict[str, str]) -> None:
    """By its own name or as an alias; secrets are masked; defaults are the target's, or what only Meltano knows."""
    told = settings(files["target-bridge.yml"])
    aliases = {alias: name for name, entry in told.items() for alias in entry.get("aliases", ())}
    assert aliases == ALIASES
    ours = CONFIG_JSONSCHEMA["properties"]
    assert ours.keys() <= {name.split(".")[0] for name in told} | aliases.keys()
    secret = {name for name, entry in told.items() if entry.get("sensitive")}
    assert secret == {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "mask_key",
        "notify",
        "openlineage",
    }
    assert {entry["kind"] for entry in told.values()} == KINDS - {"decimal"}
    assert told["spark.conf"]["kind"] == "object"
    assert told["path"]["value"] == "$MELTANO_EXTRACT__LOAD_SCHEMA"
    assert told["pipeline"]["value"] == "$MELTANO_ENVIRONMENT.$MELTANO_EXTRACTOR_NAME"
    assert told["on_reject"]["value"] == "fail"
    assert all(entry["description"] for name, entry in told.items())


def test_the_hub_s_entries_are_the_plugin_under_two_names(files: dict[str, str]) -> None:
    """As a plugin of its own, and as a variant of `target-parquet`; the command is one."""
    for name in ("target-bridge", "target-parquet"):
        entry = yaml.safe_load(files[f"hub/loaders/{name}/singer-bridge.yml"])
        assert (entry["name"], entry["namespace"]) == (name, name.replace("-", "_"))
        assert (entry["executable"], entry["variant"]) == ("target-bridge", "singer-bridge")
        assert entry["settings"] == yaml.safe_load(files["target-bridge.yml"])["settings"]
        assert entry["settings_group_validation"] == [["bucket"]]


def test_the_state_of_meltano_el_is_beside_our_config(tmp_path: Path) -> None:
    """And not that of the last `meltano run`, which is another one; absent, the tap began without."""
    environ = {
        "MELTANO_SYS_DIR_ROOT": str(tmp_path),
        "MELTANO_EXTRACTOR_NAME": "tap-x",
        "MELTANO_LOADER_NAME": "target-bridge",
    }
    beside = tmp_path / "run/elt/dev:a/01"
    for folder, text in ((beside, '{"own": 1}'), (tmp_path / "run/tap-x", '{"old": 1}')):
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(text)
    written = (tmp_path / "run/tap-x/state.json").stat().st_mtime_ns + 1
    assert meltano_state(environ, written, beside) == Start({"own": 1})
    assert meltano_state(environ, written, tmp_path / "run/target-bridge") == Start({"old": 1})
    (beside / "state.json").unlink()
    assert meltano_state(environ, written, beside) == Start(None)


@pytest.mark.parametrize(
    ("facts", "pip_url"),
    [
        (None, "singer-bridge"),
        ({"url": "file:///srv/singer-bridge", "dir_info": {"editable": True}}, "file:///srv/singer-bridge"),
        ({"url": "file:///srv/a.whl", "archive_info": {}}, "file:///srv/a.whl"),
        (
            {"url": "https://example.com/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "git+https://example.com/a.git@abc",
        ),
    ],
)
@pytest.mark.parametrize("word", ["", "tap"])
def test_what_is_printed_is_installed_from_where_we_are(
    tmp_path: Path, facts: dict[str, object] | None, pip_url: str, word: str
) -> None:
    """Nothing needs to be on an index: a clone, a wheel or a repository is named as pip takes it."""
    info = tmp_path / "singer_bridge-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: singer-bridge\nVersion: 0.0\n")
    if facts:
        (info / "direct_url.json").write_text(json.dumps(facts))
    argv = [sys.executable, "-m", "target_bridge.plugin", *filter(None, [word])]
    done = subprocess.run(argv, capture_output=True, check=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert yaml.safe_load(done.stdout)["pip_url"] == pip_url
