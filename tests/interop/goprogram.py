"""Programs that Go builds from the module proxy, once, into `.interop/`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.s3server import ROOT

_HOME = ROOT / ".interop"


def go_program(module: str, version: str) -> Path:
    """The program of a module, named as its last part. The first call takes Go and some minutes."""
    name = module.rpartition("/")[2]
    program = _HOME / f"{name}-{version}"
    if not program.exists():
        assert shutil.which("go"), f"make interop builds {name}: install Go 1.24 or later"
        into = _HOME / "go"
        environ = os.environ | {"GOBIN": str(into)}
        subprocess.run(["go", "install", f"{module}@{version}"], env=environ, cwd=ROOT, check=True)
        (into / name).replace(program)
    return program
