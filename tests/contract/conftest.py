"""Each backend as a new, empty bucket."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import cast

import pytest

from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A bucket of each backend; of "s3 uploads", too, where a test asks: every pending file is an upload there."""
    if request.param == "local":
        return LocalStorage(tmp_path / "bucket")
    if request.param == "s3 uploads":
        monkeypatch.setattr("bridge.lake.storage.s3.pending._SMALL", 0)
    return cast("Storage", request.getfixturevalue("s3").storage(f"s3://{uuid.uuid4().hex}/team"))
