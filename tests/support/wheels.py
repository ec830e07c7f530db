"""Tiny packages of taps, as wheels made by hand: they install in no time and without any network."""

from __future__ import annotations

import zipfile
from pathlib import Path

ABOUT = """{
  "name": "tap-x", "version": "1.0", "capabilities": ["discover"],
  "settings": {
    "type": "object",
    "required": ["host", "port", "password", "mode", "limits"],
    "properties": {
      "host": {"type": "string", "description": "Where the database is:\\n the host's name # not its address"},
      "port": {"type": ["integer", "null"], "default": 5432},
      "password": {"type": ["string", "null"], "secret": true},
      "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
      "limits": {"type": "object"},
      "start_date": {"type": "string", "format": "date-time"},
      "verify": {"type": "boolean", "default": true}
    }
  }
}"""
"""What a tap of the Singer SDK says about itself."""

TAP = f"""
import json, sys
ABOUT = {ABOUT!r}
STREAMS = ["users", "orders"]

def main():
    if "--about" in sys.argv:
        print(ABOUT)
    elif "--discover" in sys.argv:
        streams = [dict(tap_stream_id=name, stream=name, schema=dict(type="object", properties=dict(id=dict(
            type="integer")))) for name in STREAMS]
        print(json.dumps(dict(streams=streams)))
"""
"""A tap that can say what it is and has, and no more."""


def wheel(folder: Path, name: str = "tap-x", version: str = "1.0", *, module: str = TAP, program: str = "") -> Path:
    """Write the wheel of a package with one program, by default of the package's name."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    files = {
        f"{stem}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{program or name} = {stem}:main\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    path = folder / f"{stem}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(inner, text)
    return path
