"""Meltano: `meltano state get`, `meltano state export`, and the `state.json` of its state backends.

A backend keeps the STATE of the last complete run (`completed`) and later changes (`partial`). A run starts from both:
`partial` is merged into `completed`, object by object; lists are replaced whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted, expect, one_of
from bridge.protocol.singer.state_edits import parsed

_SPLIT = {"completed", "partial"}


def read(data: bytes, request: ConversionRequest) -> Converted:
    """The STATE that Meltano's next run would pass to the tap."""
    document = parsed(data, "the file")
    expect(document, "meltano")
    if "singer_state" not in document and not document.keys() <= _SPLIT:
        document = document[one_of(list(document), request.which, "state ID", "the file")]
    if "singer_state" not in document:
        document = _next_start(document)
    if "singer_state" not in document:
        hint = "Meltano would start from the beginning; nothing is to be imported"
        raise SettingsError("there is no `singer_state` in it", hint=hint)
    return Converted(document["singer_state"])


def _next_start(split: dict[str, Any]) -> dict[str, Any]:
    completed, partial = (split.get(part) or {} for part in ("completed", "partial"))
    result = _over(completed, partial)
    assert isinstance(result, dict)
    return result


def _over(below: Any, above: Any) -> Any:
    """Merge one STATE into another as Meltano does, at any depth of objects."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def write(state: Any, request: ConversionRequest) -> Converted:
    """Convert to the file that `meltano state set STATE_ID --input-file FILE` takes."""
    del request
    return Converted({"singer_state": state})


def place(folder: Path, which: str | None) -> Path:
    """The file in a state backend's folder, which has one folder a state ID."""
    names = [path.parent.name for path in folder.glob("*/state.json")]
    return folder / one_of(names, which, "state ID", folder) / "state.json"
