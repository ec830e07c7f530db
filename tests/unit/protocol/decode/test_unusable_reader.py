"""A compiled reader that cannot be loaded is as good as none: rows are decoded without it, and `doctor` says why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from bridge.protocol.decode import native

ROOT = Path(__file__).parents[4]
PLACE = "bridge/protocol/decode"
DECODE = """
from bridge.protocol.decode import native
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import from_singer

table = from_singer({"type": "object", "properties": {"id": {"type": "integer"}}}, ["id"])
line = b'{"type":"RECORD","stream":"a","record":{"id":7}}\\n'
print(native.AVAILABLE, native.PROBLEM)
print(decode(line, table, None).table.to_pylist())
"""


def installed(folder: Path, library: Path | bytes | None) -> Path:
    """A folder for Python's path, with the package and this as its library."""
    shutil.copytree(
        ROOT / "bridge", folder / "bridge", ignore=shutil.ignore_patterns("reader", "reader.so", "__pycache__")
    )
    if library is not None:
        data = library if isinstance(library, bytes) else library.read_bytes()
        (folder / PLACE / "reader.so").write_bytes(data)
    return folder


def output(place: Path, *words: str) -> str:
    """What Python prints with this folder first on its path."""
    environment, folder = os.environ | {"PYTHONPATH": str(place)}, place if place.is_dir() else place.parent
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BROKEN = {"empty": b"", "text": b"no library", "missing": None, "another": Path(msgspec._core.__file__)}


@pytest.mark.parametrize("library", BROKEN.values(), ids=BROKEN)
def test_rows_are_decoded_without_it(tmp_path: Path, library: Path | bytes | None) -> None:
    """A library for another machine, none, or another one: Arrow reads."""
    reason, rows = output(installed(tmp_path, library), "-c", DECODE).splitlines()
    assert reason.startswith("False ")
    assert len(reason) > len("False ")
    assert rows == "[{'id': 7}]"


@pytest.mark.skipif(not native.AVAILABLE, reason="the compiled reader is not built")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a zip's library cannot be loaded")
def test_it_is_found_in_a_zip(tmp_path: Path) -> None:
    """As executors of a cluster import us."""
    with zipfile.ZipFile(tmp_path / "bridge.zip", "w") as whole:
        for path in [*(ROOT / "bridge").rglob("*.py"), ROOT / PLACE / "reader.so"]:
            whole.write(path, path.relative_to(ROOT))
    assert output(tmp_path / "bridge.zip", "-c", DECODE).splitlines() == ["True ", "[{'id': 7}]"]


def test_the_doctor_names_it(tmp_path: Path) -> None:
    """A warning, with what to type: a run works."""
    place = installed(tmp_path, b"")
    checks = json.loads(output(place, "-m", "bridge", "doctor", "--no-spark", "--json"))["checks"]
    (found,) = (check for check in checks if check["check"] == "compiled reader")
    assert found["status"] == "warning"
    assert "reader.so" in found["found"]
    assert "pip install --force-reinstall" in found["fix"]
