"""What executors get from the driver: the package `bridge`, in a zip that is named by its contents."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, cast

from bridge.load.spark.shipping import ship
from bridge.protocol.decode import native


class Context:
    """The one call of a SparkContext that is made."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def addPyFile(self, path: str) -> None:
        self.files.append(path)


def test_executors_get_the_package_as_a_wheel_has_it(tmp_path: Path) -> None:
    """With the compiled reader where it is built, and without its sources, which a clone has."""
    context = Context()
    name = ship(cast("Any", context), tmp_path)
    assert context.files == [str(tmp_path / name)]
    files = zipfile.ZipFile(tmp_path / name).namelist()
    assert {"bridge/__init__.py", "bridge/load/spark/worker.py", "bridge/protocol/decode/native.py"} <= set(files)
    reader = ["bridge/protocol/decode/reader.so"] if native.AVAILABLE else []
    assert [file for file in files if file.startswith("bridge/protocol/decode/reader")] == reader
