"""A project folder in which `state` is typed, in this process: exit code, stdout, stderr, and the bucket."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.shell import Done, type_words

A, B = {"replication_key": "id", "replication_key_value": 5}, {"replication_key": "at", "replication_key_value": "x"}
STATE = {"bookmarks": {"a": A, "b": B}}
FILE = """
pipelines:
  shop: {source: {tap: tap-smoke}, destination: {bucket: ./lake}}
  other: {source: {tap: tap-smoke}, destination: {bucket: ./lake}}
environments:
  dev: {defaults: {incremental: {enabled: true}}}
  prod: {pipelines: {shop: {destination: {bucket: ./production}}}}
"""


class StateProject:
    """A folder with a bridge.yaml of two pipelines, in which verbs are typed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        (folder / "bridge.yaml").write_text(FILE)
        monkeypatch.chdir(folder)

    def state(self, *words: str, stdin: str = "") -> Done:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return Done(*type_words(self._capsys, "state", *words))

    def store(self, name: str = "shop", bucket: str = "lake") -> StateStore:
        return StateStore(self.folder / bucket, name)

    def kinds(self, name: str = "shop") -> list[str]:
        log = Log(LocalStorage(self.folder / "lake"), name)
        return [record.kind for record in log.history(log.head())]

    def edit_state(self, text: str, name: str = "shop") -> None:
        LocalStorage(self.folder / "lake").write(f".bridge/{name}/state.json", text.encode())

    def editor(self, *versions: str) -> None:
        """Have $EDITOR save these texts, one each time it is opened, and keep what it was shown."""
        program = self.folder / "editor.py"
        program.write_text(
            "import json, sys, pathlib\n"
            f"left, file = pathlib.Path({str(self.folder / 'versions.json')!r}), pathlib.Path(sys.argv[1])\n"
            "versions = json.loads(left.read_text())\n"
            "left.with_name('shown.txt').write_text(file.read_text())\n"
            "if versions: file.write_text(versions.pop(0))\n"
            "left.write_text(json.dumps(versions))\n"
        )
        (self.folder / "versions.json").write_text(json.dumps(versions))
        self._monkeypatch.delenv("VISUAL", raising=False)
        self._monkeypatch.setenv("EDITOR", f"{sys.executable} {program}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> StateProject:
    return StateProject(tmp_path, monkeypatch, capsys)


@pytest.fixture
def shop(project: StateProject) -> StateProject:
    """The project, with a STATE of the pipeline `shop`."""
    project.store().replace(STATE)
    return project


def text(value: Any) -> str:
    return json.dumps(value)
