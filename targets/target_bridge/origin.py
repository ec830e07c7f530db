"""Which STATE the tap was started with: what Meltano gave it, or what a setting says.

`meltano run` writes it into one file for each extractor, whatever the environment, before it starts the loader. A
second run of the same extractor may overwrite that file, so we ignore one that is newer than our own config file.
`meltano el` has a folder for each run, with the STATE beside our config file: then the other file is old.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, loads
from bridge.load.tap.stdin import Start

MELTANO_LOADER = ("MELTANO_SYS_DIR_ROOT", "MELTANO_EXTRACTOR_NAME", "MELTANO_LOADER_NAME")
"""If these variables are set, Meltano started this loader beside an extractor."""


def given_state(path: Path) -> Start:
    """Return the STATE in the file that the tap got as its `--state`. Raises `SettingsError`.

    If there is no file, or an empty one, the tap was started without a STATE.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Start(None)
    except OSError as error:
        hint = "give the file that the tap gets as --state"
        raise SettingsError(f"start_state: cannot be read: {error.strerror}", hint=hint, file=path) from error
    return _parsed(text, path) if text.strip() else Start(None)


def _parsed(text: bytes, path: Path) -> Start:
    try:
        state: Any = loads(text)
    except NotJson as error:
        hint = "give the file that the tap gets as --state"
        raise SettingsError("the STATE that the tap was started with is not JSON", hint=hint, file=path) from error
    return Start(state)


def meltano_state(environ: Mapping[str, str], written: int | None, beside: Path | None = None) -> Start | None:
    """Return what Meltano gave to the extractor that it started with us; None if nobody knows.

    `written` is when our own config file was written, in ns: Meltano writes it after the extractor's STATE. `beside` is
    the folder that it is in.
    """
    if written is None or not all(environ.get(name) for name in MELTANO_LOADER):
        return None
    run = Path(environ["MELTANO_SYS_DIR_ROOT"]) / "run"
    if beside and beside.is_relative_to(run / "elt"):
        return given_state(beside / "state.json")
    folder = run / environ["MELTANO_EXTRACTOR_NAME"]
    path = folder / "state.json"
    try:
        text = path.read_bytes() if path.exists() else None
        changed = os.stat(folder if text is None else path).st_mtime_ns
    except OSError:
        return None
    if changed > written:
        return None  # another run of this extractor wrote it for itself
    return Start(None) if text is None else _parsed(text, path)
