"""Settings are read strictly, and every one of them is documented."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tap_smoke

Tap = Callable[..., Any]
README = Path(tap_smoke.__file__).with_name("README.md").read_text()


def _names(schema: dict[str, Any]) -> Iterator[str]:
    for name, kind in schema.get("properties", {}).items():
        yield name
        yield from _names(kind.get("items", kind))


def _stream(**settings: Any) -> dict[str, Any]:
    return {"streams": [{"name": "s", **settings}]}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ([], "must be an object"),
        ({}, "no streams"),
        (_stream(sped=1), "unknown setting streams[0].sped"),
        ({**_stream(), "stat": {}}, "unknown setting stat"),
        ({**_stream(), "fail": {"when": 1}}, "unknown setting fail.when"),
        ({**_stream(), "seed": "1"}, "seed must be of type integer"),
        ({**_stream(), "delay_ms": True}, "delay_ms must be of type integer"),
        ({**_stream(), "delay_ms": -1}, "delay_ms must be at least 0"),
        ({**_stream(), "interleave": None}, "interleave must be of type boolean"),
        ({**_stream(), "style": "fancy"}, "style must be one of compact"),
        ({**_stream(), "fail": {"how": "explode"}}, "fail.how must be one of"),
        ({**_stream(), "state": None}, "state must be an object"),
        (_stream(key_properties=[1]), "key_properties item must be of type string"),
        (_stream(key_properties=["nope"]), "unknown column"),
        ({"streams": [{"name": ""}]}, "must not be empty"),
        ({"streams": [{"name": "a"}, {"name": "a"}]}, "one name"),
        (_stream(resumable=True), "resumable needs"),
        (_stream(progress_markers=True, replication_method="FULL_TABLE"), "progress_markers needs"),
        (_stream(activate_first=True), "activate_first needs"),
        (_stream(schema_change={"at": 2}), "either add or retype"),
        (_stream(schema_change={"at": 2, "add": "name"}), "exists"),
        (_stream(schema_change={"at": 2, "retype": "nope"}), "unknown column"),
        (_stream(schema_change={"at": 2, "retype": "name", "to": "number"}), "integer column"),
        ({**_stream(progress_markers=True), "state": {"flat": True}}, "flat"),
        ({**_stream(), "state": {"flat": True, "currently_syncing": True}}, "flat"),
    ],
)
def test_a_wrong_config_is_refused(smoke: Tap, config: Any, complaint: str) -> None:
    """Exit 1, nothing on stdout, and a message that names the setting."""
    run = smoke(config)
    assert (run.code, run.stdout) == (1, b"")
    assert complaint in run.stderr


def test_a_config_is_needed_and_must_be_json(smoke: Tap, tmp_path: Path) -> None:
    """A missing switch, a missing file and broken JSON are errors without a traceback."""
    (tmp_path / "broken.json").write_text("{")
    for switches in ((), ("--config", str(tmp_path / "none")), ("--config", str(tmp_path / "broken.json"))):
        run = smoke(None, *switches)
        assert (run.code, run.stderr.count("\n")) == (1, 1)


def test_about_lists_every_setting_and_the_readme_explains_it(smoke: Tap) -> None:
    """The README's tables and `--about` have every config key, however deep."""
    about = json.loads(smoke(None, "--about", "--format", "json").stdout)
    assert {"catalog", "discover", "state"} <= set(about["capabilities"])
    names = set(_names(about["settings"]))
    assert {"seed", "fail_once_file", "progress_markers", "currently_syncing", "retype", "how"} <= names
    assert [name for name in names if f"`{name}`" not in README and f'"{name}"' not in README] == []
    markdown = smoke(None, "--about").stdout.decode()
    assert all(f"| `{name}` |" in markdown for name in about["settings"]["properties"])


def test_the_readme_examples_run(smoke: Tap, tmp_path: Path) -> None:
    """Each example config does what its sentence says."""
    first, second = (json.loads(part.split("```")[0]) for part in README.split("```json\n")[1:])
    first["fail_once_file"] = str(tmp_path / "once")
    cut = smoke(first)
    rest = smoke(first, state=cut.states[-1])
    assert cut.committed.ids() + rest.ids() == list(range(1, 10_001))
    run = smoke(second)
    assert (len(run.ids("users")), len(run.ids("rates"))) == (200, 300)


def test_version_and_the_installed_command() -> None:
    """The console script exists and names the distribution's version."""
    command = shutil.which("tap-smoke", path=str(Path(sys.executable).parent))
    assert command
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("tap-smoke ")


@pytest.mark.parametrize("modules", ["tap_smoke.cli, tap_smoke.sync", "tap_replay.cli, tap_replay.player"])
def test_start_up_imports_no_heavy_module(modules: str) -> None:
    """Neither the bridge nor anything outside the standard library is imported, so a run starts at once."""
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not {"bridge", "pyarrow", "pyspark", "orjson", "click", "importlib.metadata"} & loaded
