"""DataSpoc Pipe: the last STATE of the tap, verbatim, at `<bucket>/.dataspoc/state/<pipeline>/state.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted, expect, one_of
from bridge.protocol.singer.state_edits import parsed


def read(data: bytes, request: ConversionRequest) -> Converted:
    """The STATE. It may be that of a run that was never completed: DataSpoc stores it whatever was loaded."""
    del request
    state = parsed(data, "the file")
    expect(state, "singer")
    if not isinstance(state, dict):
        hint = "it keeps JSON objects; give <bucket>/.dataspoc/state/<pipeline>/state.json"
        raise SettingsError("this is no STATE as dataspoc keeps it", hint=hint)
    return Converted(state)


def write(state: Any, request: ConversionRequest) -> Converted:
    """The document. Raises `SettingsError` for a STATE that is no object, or empty: DataSpoc ignores these."""
    del request
    if not isinstance(state, dict) or not state:
        hint = "delete its state.json instead, and it starts from the beginning"
        raise SettingsError("DataSpoc cannot keep this STATE", hint=hint)
    return Converted(state)


def place(folder: Path, which: str | None) -> Path:
    """The file in a bucket."""
    names = [path.parent.name for path in (folder / ".dataspoc" / "state").glob("*/state.json")]
    return folder / ".dataspoc" / "state" / one_of(names, which, "pipeline", folder) / "state.json"
