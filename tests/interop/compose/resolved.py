"""A compose file as docker compose understands it: read by its own library, which Go builds once into `.interop/`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support.s3server import ROOT

_SOURCE = Path(__file__).with_name("resolve")


class Refused(Exception):
    """The library does not take the file."""


def resolver() -> Path:
    """The program, built from `resolve/` as its go.sum pins it. The first call takes Go and a minute."""
    pinned = b"".join((_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    program = ROOT / ".interop" / f"resolve-{hashlib.sha256(pinned).hexdigest()[:12]}"
    if not program.exists():
        assert shutil.which("go"), "make interop builds a reader of compose files: install Go 1.24 or later"
        subprocess.run(["go", "build", "-o", program, "."], cwd=_SOURCE, check=True)
    return program


def resolved(folder: Path, *profiles: str, **environ: str) -> dict[str, Any]:
    """The docker-compose.yml of a folder with the services of these profiles, its variables filled in."""
    clean = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    argv = [str(resolver()), str(folder), *profiles]
    done = subprocess.run(argv, env=clean | environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    project: dict[str, Any] = json.loads(done.stdout)
    return project
