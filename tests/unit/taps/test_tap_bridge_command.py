"""`tap-bridge` as it is typed: flags, wrong files and settings, a target that ends first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from tests.support.tables import INTEGER, Shop
from tests.support.tap_bridge import last_state, read, sent


def test_wrong_settings_name_what_there_is(tmp_path: Path) -> None:
    """Another pipeline's name, and a section of a store that is not one."""
    Shop(tmp_path).load("t", {"id": INTEGER}, [{"id": 1}])
    with pytest.raises(SettingsError) as raised:
        read(tmp_path, pipeline="shp")
    assert "shop" in raised.value.hint
    with pytest.raises(SettingsError, match=r"s3\.endpoint_url"):
        read(tmp_path, bucket="s3://bucket", s3={"endpoint_url": "nonsense"})


def test_the_command_line(tmp_path: Path) -> None:
    """`--discover`, `--catalog`, `--state` and `--config` as of any tap; an error says what to do, and exits with 2."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    (tmp_path / "config.json").write_text(json.dumps({"bucket": str(shop.root)}))
    assert _typed(tmp_path, "--discover", to="catalog.json") == ""
    (tmp_path / "state.json").write_text(json.dumps(last_state(read(tmp_path))))
    shop.load("t", {"id": INTEGER}, [{"id": 2}])
    assert _typed(tmp_path, "--catalog", "catalog.json", "--state", "state.json", to="out.jsonl") == ""
    assert sent((tmp_path / "out.jsonl").read_bytes()) == [2]
    (tmp_path / "config.json").write_text(json.dumps({"bucket": str(shop.root), "pipeline": "shp"}))
    assert 'did you mean "shop"' in _typed(tmp_path, to="out.jsonl", code=2)


@pytest.mark.parametrize("lines", [0, 3])
def test_a_target_that_ends_before_the_tap(lines: int, tmp_path: Path) -> None:
    """Whether it read nothing or some records: one line says so, and the exit code is 1."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": n} for n in range(20_000)])  # more than a pipe holds
    (tmp_path / "config.json").write_text(json.dumps({"bucket": str(shop.root)}))
    command = [sys.executable, "-m", "tap_bridge", "--config", "config.json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tap:
        assert tap.stdout
        assert tap.stderr
        for _ in range(lines):
            tap.stdout.readline()
        tap.stdout.close()
        log = tap.stderr.read().decode()
        assert tap.wait(60) == 1
    errors = [line for line in log.splitlines() if "ERROR" in line or "Traceback" in line]
    assert len(errors) == 1, log
    assert "The target ended before the tap" in errors[0]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("config", None, "was not found"),
        ("config", "{", "--config: "),
        ("config", "[1]", "--config: "),
        ("state", "{", "--state: this is no object of JSON"),
        ("catalog", "[]", "--catalog: this is no object of JSON"),
        ("config", '{"bucket": "./lake", "streams": {"tt*": {}}}', "there are: t"),
        ("config", '{"bucket": "./none"}', "this bucket has no pipeline"),
    ],
)
def test_wrong_files_are_named(name: str, text: str | None, error: str, tmp_path: Path) -> None:
    """A file that is missing, or no object of JSON; settings of no table; a bucket with nothing in it."""
    Shop(tmp_path).load("t", {"id": INTEGER}, [{"id": 1}])
    for one, content in {"config": '{"bucket": "./lake"}', "state": "{}", "catalog": "{}", name: text}.items():
        if content is not None:
            (tmp_path / f"{one}.json").write_text(content)
    said = _typed(tmp_path, "--state", "state.json", "--catalog", "catalog.json", to="out.jsonl", code=2)
    assert error in said
    assert "Traceback" not in said


def _typed(folder: Path, *words: str, to: str, code: int = 0) -> str:
    """Type `tap-bridge` with its output into a file; what it logged as an error."""
    with (folder / to).open("wb") as out:
        command = [sys.executable, "-m", "tap_bridge", "--config", "config.json", *words]
        done = subprocess.run(
            command, cwd=folder, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert done.returncode == code, done.stderr
    return "".join(line for line in done.stderr.splitlines() if "ERROR" in line)
