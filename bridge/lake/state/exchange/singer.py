"""Singer: the bare value as `--state` takes it, STATE messages, or what a target printed: a value a line."""

from __future__ import annotations

from typing import Any

from bridge.errors import SettingsError
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted, expect
from bridge.protocol.singer.state_edits import check_shape, parsed


def read(data: bytes, request: ConversionRequest) -> Converted:
    """The STATE; of several lines the last one's, as a target prints one for each time that it was durable.

    Raises `SettingsError` for a tap's whole output: only a target knows how much of it was loaded.
    """
    del request
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) > 1 and all(_is_object(line) for line in lines):
        documents = [parsed(line, "a line of the file") for line in lines]
    else:
        documents = [parsed(data, "the file")]
    if any(isinstance(document, dict) and document.get("type") in ("RECORD", "SCHEMA") for document in documents):
        hint = "give what the target printed, or the file that was passed to the tap as --state"
        raise SettingsError("this is a tap's output: how much of it was loaded is not said in it", hint=hint)
    state = documents[-1]
    if isinstance(state, dict) and state.get("type") == "STATE" and "value" in state:
        state = state["value"]
    expect(state, "singer")
    check_shape(state)
    return Converted(state)


def _is_object(line: bytes) -> bool:
    return line.strip().startswith(b"{") and line.strip().endswith(b"}")


def write(state: Any, request: ConversionRequest) -> Converted:
    """The bare value, for a tap's `--state`."""
    del request
    return Converted(state)
