"""A tap's answer about itself: `--about --format json`, as taps of the Singer SDK have it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from bridge.settings.redact import SECRET_KEY

_PATIENCE = timedelta(seconds=60)
_TEXT_KINDS = ("string", "")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a tap."""

    name: str
    kind: str
    """JSON's word for its type, empty if the tap does not say."""
    required: bool
    secret: bool
    default: Any
    """None if there is none."""
    choices: tuple[Any, ...]
    description: str
    """One line."""


@dataclass(frozen=True, slots=True)
class About:
    """A tap's answer about itself. What it leaves out is empty."""

    name: str
    version: str
    capabilities: tuple[str, ...]
    settings: tuple[Setting, ...]

    @property
    def required(self) -> tuple[Setting, ...]:
        """The settings without which the tap does not start."""
        return tuple(setting for setting in self.settings if setting.required)


def about(argv: Sequence[str], environ: Mapping[str, str]) -> About | None:
    """Ask the tap about itself; None if it does not know the question. No answer raises an error."""
    answer = _ask([*argv, "--about", "--format", "json"], environ)
    with suppress(ValueError, TypeError, AttributeError):
        return _about(orjson.loads(answer))
    return None


def _ask(command: list[str], environ: Mapping[str, str]) -> bytes:
    """The output of a command, empty if it fails. A tap that starts to extract instead is stopped."""
    try:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return b""
    try:
        answer, _ = process.communicate(timeout=_PATIENCE.total_seconds())
    except subprocess.TimeoutExpired:
        answer = b""
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    return answer if process.returncode == 0 else b""


def _about(answer: dict[str, Any]) -> About:
    schema = answer.get("settings") or {}
    required = schema.get("required") or ()
    properties = schema.get("properties") or {}
    settings = tuple(_setting(name, kind, name in required) for name, kind in properties.items())
    capabilities = tuple(map(str, answer.get("capabilities") or ()))
    return About(str(answer.get("name") or ""), str(answer.get("version") or ""), capabilities, settings)


def _setting(name: str, schema: dict[str, Any], required: bool) -> Setting:
    kind = _kind(schema)
    marked = bool(schema.get("secret") or schema.get("writeOnly") or schema.get("format") == "password")
    secret = marked or (kind in _TEXT_KINDS and bool(SECRET_KEY.search(name)))
    choices = tuple(choice for choice in schema.get("enum") or () if choice is not None)
    description = " ".join(str(schema.get("description") or "").split())
    return Setting(name, kind, required, secret, schema.get("default"), choices, description)


def _kind(schema: dict[str, Any]) -> str:
    """The first type that is not null, also inside `anyOf` and `oneOf`."""
    kinds = schema.get("type") or [_kind(one) for key in ("anyOf", "oneOf") for one in schema.get(key) or ()]
    return next((kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind and kind != "null"), "")
