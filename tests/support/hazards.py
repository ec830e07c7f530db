"""The files in tests/data: what a tap may write, a hazard each, and beside each what is to become of it.

`NAME.json` has the `hazard` and its `result` in words, as tests/data/README.md says them, the `settings` other than the
defaults, and the `outcome` of loading `NAME.singer` into an empty lake.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.pipe import Pipe, plain

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.glob("*.singer"))
_LONG = 200


def said(file: Path) -> dict[str, Any]:
    """What stands beside a file."""
    found: dict[str, Any] = json.loads(file.with_suffix(".json").read_text())
    return found


def outcome(file: Path, root: Path, **settings: Any) -> dict[str, Any]:
    """What became of a file in an empty lake: rows by stream in their order, and what else a user sees.

    Keys that have nothing to say are left out; long texts are told by their length.
    """
    found = Pipe(root).load(file.read_bytes(), **settings)
    rejects = [[reject.get(key, "") for key in ("stream", "reason", "pointer", "offset")] for reject in found.rejects()]
    error = found.error and [type(found.error).__name__, found.error.message.split(" cause=")[0]]
    told = {
        "rows": {stream: _short(plain(found.rows(stream))) for stream in found.streams()},
        "folders": sorted(table.folder for table in found.view.tables.values()),
        "versions": {stream: table.version for stream, table in found.view.tables.items() if table.version},
        "rejects": rejects,
        "warnings": found.warnings,
        "error": error,
    }
    return {key: value for key, value in told.items() if value} | {"state": plain(found.state)}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    return f"{len(value)} characters" if isinstance(value, str) and len(value) > _LONG else value
