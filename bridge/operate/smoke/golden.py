"""Schemas that were written down once, and how they differ now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.operate.smoke.verdicts import Verdicts


def check_golden(path: Path, schemas: dict[str, Any], verdicts: Verdicts) -> bool:
    """Compare with the file; if it is absent, write it, and return True. Raises `SettingsError` for another file."""
    verdicts.make("golden")
    try:
        if not path.exists():
            path.write_bytes(dumps({"format": 1, "streams": schemas}, indent=2))
            return True
        expected = loads(path.read_bytes())["streams"]
    except OSError as error:
        raise SettingsError(f"--golden: {error.strerror}", hint="check the path", file=path) from error
    except (NotJson, KeyError, TypeError) as error:
        hint = "delete it, and it is written again"
        raise SettingsError("--golden: this file was not written by `smoke --golden`", hint=hint, file=path) from error
    hint = f"if you want it so, delete {path} and run again"
    for stream in sorted(expected.keys() - schemas.keys()):
        verdicts.fail("golden", "the stream sent no SCHEMA", hint, stream=stream)
    for stream in sorted(schemas.keys() - expected.keys()):
        verdicts.fail("golden", "a new stream", hint, stream=stream)
    for stream in sorted(schemas.keys() & expected.keys()):
        for pointer, text in _differences(expected[stream], loads(dumps(schemas[stream])), ""):
            verdicts.fail("golden", text, hint, stream=stream, pointer=pointer)
    return False


def _differences(old: Any, new: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name not in new:
                yield f"{at}/{name}", "gone"
            elif name not in old:
                yield f"{at}/{name}", "new"
            else:
                yield from _differences(old[name], new[name], f"{at}/{name}")
    elif old != new:
        yield at or "/", f"was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
