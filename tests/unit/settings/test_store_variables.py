"""What the libraries of stores look for in the environment may stand in `.env`, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.settings.load import read_settings


def test_variables_of_stores_in_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are set in this process, unless they are there; nothing else of `.env` is."""
    monkeypatch.setattr(os, "environ", {"AWS_PROFILE": "own"})
    (tmp_path / "bridge.yaml").write_text("pipelines: {a: {source: {tap: tap-smoke}, destination: {bucket: ./lake}}}\n")
    (tmp_path / ".env").write_text("AWS_PROFILE=x\nAWS_REGION=eu\nGOOGLE_APPLICATION_CREDENTIALS=/key.json\nOTHER=1\n")
    read_settings(tmp_path / "bridge.yaml")
    assert os.environ == {
        "AWS_PROFILE": "own",
        "AWS_REGION": "eu",
        "GOOGLE_APPLICATION_CREDENTIALS": "/key.json",
    }
