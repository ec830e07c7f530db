"""The taps of a project, with the settings that an installation needs. No password has to be set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bridge.errors import SettingsError
from bridge.settings.layers import read_project
from bridge.settings.load import load
from bridge.settings.options import Source
from bridge.settings.secrets import shown_to_all
from bridge.settings.text.tree import Node, resolve
from bridge.settings.text.variables import Variables, read_dotenv

_KEYS = ("tap", "pip_url", "env")


@dataclass(frozen=True, slots=True)
class Installable:
    """How to install the tap of one pipeline."""

    pipeline: str
    source: Source
    """Command, `pip_url` and environment; its other settings are left out."""
    folder: Path
    """Where a relative path in `pip_url` starts."""


def installables(path: Path, environ: Mapping[str, str], env: str | None, name: str | None) -> list[Installable]:
    """The taps of all pipelines, or of one. Raises `SettingsError` if their settings are wrong."""
    path = path.absolute()
    settings = load(path, environ, env)
    if name is not None and name not in settings.pipelines:
        settings.pipeline(name)  # raises, and says what may have been meant
    variables = Variables({**read_dotenv(path.parent / ".env"), **environ})
    project = read_project(path, variables.without_commands.expand)
    names = [name] if name else list(settings.pipelines)
    return [_installable(one, project.layers(one, settings.environment), variables) for one in names]


def _installable(name: str, layers: Node, variables: Variables) -> Installable:
    source = layers.value.get("source") if isinstance(layers.value, dict) else None
    keys = source.value if source and isinstance(source.value, dict) else {}
    needed = Node({key: keys[key] for key in _KEYS if key in keys}, layers.origin, layers.key, layers.line)
    document = resolve(needed, variables.expand, lambda key: key[:1] == ("env",))
    for _, problem in document.problems:
        raise problem
    for key, piece in document.expanded:
        if piece.of_command and (reason := shown_to_all(("source", *key))):
            raise document.nodes[key].error(f"{reason[0]}: no ${{cmd:...}} here", reason[1])
    folders = {key: document.nodes[(key,)].origin.folder for key in document.data}
    try:
        made = Source.model_validate(document.data, context={"folders": folders})
    except ValidationError:
        where = f"{layers.where}: the source of this pipeline is wrong"
        raise SettingsError(where, hint="singer-bridge config check says what", pipeline=name) from None
    return Installable(name, made, folders.get("pip_url", layers.origin.folder))
