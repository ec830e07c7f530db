"""Settings whose keys may have dots, as they were written: Meltano takes a dot for a step into an object.

A key `*.item` in meltano.yml reaches a plugin as `{"*": {"item": ...}}`; one in a variable of the environment is
dropped without a word. Meltano exports each setting as it was written, too, as `MELTANO_LOAD_<NAME>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bridge.errors import SettingsError
from bridge.settings.destination import StreamKeys

_TEXTS = (("", "mask"), ("spark", "conf"), ("catalog", "properties"))
"""Objects of texts, each with the setting that it is in: below them an object stands for a dot."""
_SDKS_OWN = ("stream_maps", "stream_map_config")
"""Their keys mean something to the SDK alone, so a lost one cannot be put back."""


def as_written(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings, with the dots that their keys had. Raises `SettingsError` where Meltano lost one for good."""
    settings = dict(config)
    for name in _SDKS_OWN:
        if lost := _exported(environ, name).keys() - _leaves(settings.get(name)).keys():
            hint = r"write each dot of a key as `\.`"
            raise SettingsError(f"{name}: Meltano left out {min(lost)!r}, a key with a dot", hint=hint)
    for parent, name in _TEXTS:
        section = (settings.get(parent) or {}) if parent else settings
        given = section.get(name, {}) if isinstance(section, dict) else None
        if isinstance(given, dict) and (texts := _leaves(given) | _below(environ, parent, name)):
            settings |= {parent: {**section, name: texts}} if parent else {name: texts}
    streams, exported = settings.get("streams"), _exported(environ, "streams")
    if exported.keys() - _leaves(streams).keys() or _has_steps(streams):
        settings["streams"] = _by_glob(_leaves(streams) | exported)
    return settings


def _below(environ: Mapping[str, str], parent: str, name: str) -> dict[str, Any]:
    """Return what Meltano exports of a setting in another one, whichever of the two it knows as a whole."""
    if not parent:
        return _exported(environ, name)
    whole = {
        key.partition(".")[2]: one for key, one in _exported(environ, parent).items() if key.startswith(f"{name}.")
    }
    return whole | _exported(environ, f"{parent}_{name}")


def _exported(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return what Meltano exports of a setting, by dotted keys."""
    try:
        value = json.loads(environ.get(f"MELTANO_LOAD_{name.upper()}", "{}"))
    except ValueError:
        return {}
    return {key.replace("\\.", "."): one for key, one in _leaves(value).items()}


def _leaves(value: Any) -> dict[str, Any]:
    """Return what is in an object, by dotted keys; an empty object is a leaf."""
    leaves: dict[str, Any] = {}
    for key, one in value.items() if isinstance(value, dict) else ():
        leaves |= {f"{key}.{rest}": leaf for rest, leaf in _leaves(one).items()} or {key: one}
    return leaves


def _has_steps(streams: Any) -> bool:
    """Whether an object stands where only a setting of a stream may."""
    entries = [entry for entry in streams.values() if isinstance(entry, dict)] if isinstance(streams, dict) else []
    below = [one for entry in entries for key, one in entry.items() if key not in StreamKeys.model_fields]
    return any(isinstance(one, dict) for one in below)


def _by_glob(leaves: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of streams by their globs: a glob ends before the first part that is the name of a setting."""
    streams: dict[str, dict[str, Any]] = {}
    for key, value in leaves.items():
        parts = key.split(".")
        end = next((at for at, part in enumerate(parts) if at and part in StreamKeys.model_fields), len(parts) - 1)
        glob, name, below = ".".join(parts[:end]), parts[end], ".".join(parts[end + 1 :])
        own = streams.setdefault(glob, {})
        if below:
            own.setdefault(name, {})[below] = value
        else:
            own[name] = value
    return streams
