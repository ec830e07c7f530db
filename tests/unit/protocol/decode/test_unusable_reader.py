"""A compiled reader that cannot be loaded is as good as none: rows are decoded without it, and `doctor` says why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "bridge/protocol/decode/reader/singer_bridge_reader/__init__.py"
LIBRARY = "reader.dylib" if sys.platform == "darwin" else "reader.so"
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
    package = folder / "singer_bridge_reader"
    package.mkdir()
    shutil.copy(PACKAGE, package)
    if library is not None:
        (package / LIBRARY).write_bytes(library if isinstance(library, bytes) else library.read_bytes())
    return folder


def output(place: Path, *words: str) -> str:
    """What Python prints with this folder first on its path."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=place, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BROKEN = {"empty": b"", "text": b"no library", "missing": None, "another": Path(msgspec._core.__file__)}


@pytest.mark.parametrize("library", BROKEN.values(), ids=BROKEN)
def test_rows_are_decoded_without_it(tmp_path: Path, library: Path | bytes | None) -> None:
    """A library for another machine, none, or another one: the import fails as imports do, and Arrow reads."""
    reason, rows = output(installed(tmp_path, library), "-c", DECODE).splitlines()
    assert reason.startswith("False the compiled reader cannot be loaded: ")
    assert rows == "[{'id': 7}]"


def test_an_empty_package_is_no_reader(tmp_path: Path) -> None:
    """Python imports that, too, and a folder that an uninstallation left."""
    installed(tmp_path, None)
    (tmp_path / "singer_bridge_reader/__init__.py").write_text("")
    reason, rows = output(tmp_path, "-c", DECODE).splitlines()
    assert reason == "False the compiled reader is one for another version of singer-bridge"
    assert rows == "[{'id': 7}]"


def test_the_doctor_names_it(tmp_path: Path) -> None:
    """A warning, with what to type: a run works."""
    place = installed(tmp_path, b"")
    checks = json.loads(output(place, "-m", "bridge", "doctor", "--no-spark", "--json"))["checks"]
    (found,) = (check for check in checks if check["check"] == "compiled reader")
    assert found["status"] == "warning"
    assert LIBRARY in found["found"]
    assert "pip install --force-reinstall" in found["fix"]
