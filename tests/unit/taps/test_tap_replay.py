"""A recording is played byte for byte, from where the state says, at the pace that was set."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tap_replay

Tap = Callable[..., Any]
README = Path(tap_replay.__file__).with_name("README.md").read_text()


@pytest.fixture
def recording(smoke: Tap, tmp_path: Path) -> Path:
    """Two streams one after the other, 10 records each, a STATE after every 4."""
    config = {"streams": [{"name": "a", "records": 10}, {"name": "b", "records": 10}], "state": {"every": 4}}
    path = tmp_path / "recording.singer"
    path.write_bytes(smoke(config).stdout)
    return path


def _state(**bookmarks: int) -> dict[str, Any]:
    marks = {name: {"replication_key": "id", "replication_key_value": value} for name, value in bookmarks.items()}
    return {"bookmarks": marks}


@pytest.mark.parametrize("chunk_bytes", [1, 1000, 1024 * 1024])
def test_a_recording_is_played_byte_for_byte(replay: Tap, recording: Path, chunk_bytes: int) -> None:
    """Whatever the chunk, also where the last line is half a line."""
    recording.write_bytes(recording.read_bytes() + b'{"type":"RECORD","str')
    run = replay({"path": str(recording), "chunk_bytes": chunk_bytes})
    assert (run.code, run.stdout) == (0, recording.read_bytes())


def test_a_compressed_recording(replay: Tap, recording: Path) -> None:
    """A name that ends in .gz is decompressed."""
    packed = recording.with_suffix(".gz")
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    assert replay({"path": str(packed)}).stdout == recording.read_bytes()
    state = _state(a=10, b=4)
    plain = replay({"path": str(recording)}, state=state)
    assert replay({"path": str(packed)}, state=state).stdout == plain.stdout
    assert plain.ids() == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("name", ["r.singer", "r.singer.gz"])
@pytest.mark.parametrize("tail", [b"", b"half a line"])
def test_loops(replay: Tap, recording: Path, name: str, tail: bytes) -> None:
    """Played so many times; a half line at the end does not glue two loops together."""
    content = recording.read_bytes() + tail
    path = recording.with_name(name)
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    glue = b"\n" if tail else b""
    assert replay({"path": str(path), "loops": 3}).stdout == glue.join([content] * 3)


def test_resuming_after_a_state(replay: Tap, recording: Path) -> None:
    """Records up to the state are skipped, the stream that goes on gets its SCHEMA, the finished one no mention."""
    run = replay({"path": str(recording)}, state=_state(a=10, b=4))
    assert [m.get("stream") for m in run.messages[:2]] == ["b", "b"]
    assert run.messages[0]["type"] == "SCHEMA"
    assert (run.ids("a"), run.ids("b")) == ([], [5, 6, 7, 8, 9, 10])


def test_a_schema_in_the_rest_is_not_doubled(replay: Tap, recording: Path) -> None:
    """A stream that announces itself after the state needs no second SCHEMA."""
    run = replay({"path": str(recording)}, state=_state(a=8))
    assert [m["stream"] for m in run.of("SCHEMA")] == ["a", "b"]
    assert (run.ids("a"), run.ids("b")) == ([9, 10], list(range(1, 11)))


def test_the_last_equal_state_counts(replay: Tap, recording: Path) -> None:
    """A recording in which the same STATE comes twice resumes after the second; key order does not matter."""
    recording.write_bytes(recording.read_bytes() * 2)
    swapped = {"bookmarks": {"a": {"replication_key_value": 8, "replication_key": "id"}}}
    assert len(replay({"path": str(recording)}, state=swapped).ids()) == 12


def test_a_state_that_is_not_there_plays_everything(replay: Tap, recording: Path) -> None:
    """And stderr says so; with honour_state false the state is not looked for."""
    run = replay({"path": str(recording)}, state=_state(a=5))
    assert run.stdout == recording.read_bytes()
    assert "does not have that state" in run.stderr
    deaf = replay({"path": str(recording), "honour_state": False}, state=_state(a=10, b=4))
    assert deaf.stdout == recording.read_bytes()


def test_any_line_may_be_in_a_recording(replay: Tap, recording: Path) -> None:
    """Noise, blank lines and lists neither stop the search for a state nor get lost."""
    recording.write_bytes(b"hello\n\n[1]\n" + recording.read_bytes() + b"bye\n")
    assert replay({"path": str(recording)}).stdout == recording.read_bytes()
    assert replay({"path": str(recording)}, state=_state(a=10, b=10)).stdout.endswith(b"bye\n")


def test_pace(replay: Tap, recording: Path) -> None:
    """Line n leaves not before n / lines_per_second seconds."""
    count = len(recording.read_bytes().splitlines())
    started = time.monotonic()
    run = replay({"path": str(recording), "lines_per_second": 100})
    assert time.monotonic() - started >= (count - 1) / 100
    assert run.stdout == recording.read_bytes()


def test_discover_reads_the_schemas(replay: Tap, recording: Path) -> None:
    """Streams, keys and the replication key come from the SCHEMA lines; nothing is claimed that they do not say."""
    bare = {"type": "SCHEMA", "stream": "c", "schema": {"properties": {"x": {"type": "integer"}}}}
    recording.write_bytes(recording.read_bytes() + json.dumps(bare).encode() + b"\n")
    streams = json.loads(replay({"path": str(recording)}, "--discover").stdout)["streams"]
    assert [entry["stream"] for entry in streams] == ["a", "b", "c"]
    root = streams[0]["metadata"][0]["metadata"]
    assert (root["replication-method"], root["replication-key"]) == ("INCREMENTAL", "id")
    assert root["table-key-properties"] == ["id"]
    assert "replication-method" not in streams[2]["metadata"][0]["metadata"]


@pytest.mark.parametrize("pace", [None, 1_000_000])
def test_streams_that_a_catalog_deselects_are_left_out(replay: Tap, recording: Path, pace: int | None) -> None:
    """Their lines are left out, the others stay as they are."""
    config = {"path": str(recording), "lines_per_second": pace}
    catalog = json.loads(replay(config, "--discover").stdout)
    assert replay(config, catalog=catalog).stdout == recording.read_bytes()
    catalog["streams"][0]["metadata"][0]["metadata"]["selected"] = False
    kept = [line for line in recording.read_bytes().splitlines(keepends=True) if b'"stream":"a"' not in line]
    assert replay(config, catalog=catalog).stdout == b"".join(kept)


def test_output_to_a_file_and_to_an_appended_file(recording: Path, tmp_path: Path) -> None:
    """Where the kernel cannot copy to the output, the bytes are the same."""
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"path": str(recording)}))
    for mode in ("wb", "ab"):
        with (tmp_path / mode).open(mode) as out:
            subprocess.run([sys.executable, "-m", "tap_replay", "--config", str(config)], stdout=out, check=True)
        assert (tmp_path / mode).read_bytes() == recording.read_bytes()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ([], "must be an object"),
        ({}, "needs a path"),
        ({"path": "x", "loop": 2}, "unknown setting loop"),
        ({"path": "x", "loops": 0}, "loops must be at least 1"),
        ({"path": "x", "honour_state": 1}, "honour_state must be of type boolean"),
        ({"path": "/nowhere/x.singer"}, "cannot read the recording"),
    ],
)
def test_a_wrong_config_is_refused(replay: Tap, config: Any, complaint: str) -> None:
    """Exit 1, nothing on stdout, one line on stderr that names the setting."""
    run = replay(config)
    assert (run.code, run.stdout, run.stderr.count("\n")) == (1, b"", 1)
    assert complaint in run.stderr


def test_about_lists_every_setting_and_the_readme_explains_it(replay: Tap) -> None:
    """The README's table and `--about` have every config key."""
    about = json.loads(replay(None, "--about", "--format", "json").stdout)
    names = about["settings"]["properties"]
    assert set(names) == {"path", "loops", "honour_state", "lines_per_second", "chunk_bytes"}
    assert [name for name in names if f"| `{name}` |" not in README] == []
    assert all(f"| `{name}` |" in replay(None, "--about").stdout.decode() for name in names)


def test_the_readme_examples_run(replay: Tap, recording: Path) -> None:
    """Each example config plays the recording as its sentence says."""
    recording.with_suffix(".singer.gz").write_bytes(gzip.compress(recording.read_bytes()))
    first, second = (json.loads(part.split("```")[0]) for part in README.split("```json\n")[1:])
    for config in (first, second):
        config["path"] = str(recording.with_name(config["path"]))
    assert replay(first).stdout == recording.read_bytes() * 3
    assert replay(second, state=_state(a=10)).stdout == recording.read_bytes()


def test_version_and_the_installed_command() -> None:
    """The console script exists and names the distribution's version."""
    command = shutil.which("tap-replay", path=str(Path(sys.executable).parent))
    assert command
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("tap-replay ")
