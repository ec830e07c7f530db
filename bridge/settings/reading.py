"""One pipeline of a project: its layers filled in, checked, and explained where they are wrong."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from bridge.errors import SettingsError
from bridge.settings.explain import InFile, explained
from bridge.settings.options import Keys, Pipeline
from bridge.settings.project import Project
from bridge.settings.secrets import config_file, with_secrets
from bridge.settings.tree import Document, Expand, Key, resolve
from bridge.settings.values import pipeline_name

__all__ = ["read_pipeline"]

_CONFIG: Key = ("source", "config")
_PATHS: tuple[Key, ...] = (
    _CONFIG,
    *(("source", key) for key in ("tap", "catalog")),
    ("destination", "bucket"),
    ("spool", "dir"),
)


def _is_text(key: Key) -> bool:
    """Environments and Spark's settings are text: `PORT: 5432`, `ZIP: 007` and `FLAG: true` mean what is written."""
    return key[:2] in (("source", "env"), ("spark", "conf")) and key[2:] != ()


def read_pipeline(
    project: Project, expand: Expand, name: str, environment: str | None
) -> tuple[Pipeline | None, list[tuple[Key, SettingsError]]]:
    """Return a pipeline, or all that is wrong with it, in reading order."""
    document = resolve(project.layers(name, environment), expand, _is_text)
    place, problems = InFile(document), list(document.problems)
    full = f"{environment}.{name}" if environment else name
    if wrong := pipeline_name(full):
        problems.append(((), place.error((), *wrong)))
    try:
        keys = Keys.model_validate(document.data, context={"folders": _folders(document)})
        pipeline = Pipeline.model_validate({"name": full, **{key: getattr(keys, key) for key in Keys.model_fields}})
        if not problems:
            return with_secrets(pipeline, document.expanded, place), []
    except ValidationError as error:
        # What a variable would have brought was not checked, only what is written in its place.
        unknown = [key for key, _ in document.problems]
        problems += [(key, one) for key, one in explained(error, place) if not _touches(key, unknown)]
    except SettingsError as error:
        return None, [(_CONFIG, error)]
    problems += _config_problems(document, place)
    return None, sorted(problems, key=lambda problem: place.order(problem[0]))


def _config_problems(document: Document, place: InFile) -> list[tuple[Key, SettingsError]]:
    """Return what is wrong with the tap's settings where they are a file, whatever else is wrong."""
    node = document.nodes.get(_CONFIG)
    if node is None or not isinstance(node.value, str) or _CONFIG in [key for key, _ in document.problems]:
        return []
    try:
        given = document.data["source"]["config"]
        config_file(node.origin.folder / Path(given).expanduser(), place)
    except SettingsError as error:
        return [(_CONFIG, error)]
    except (TypeError, ValueError, RuntimeError):  # no path at all: that was told already
        pass
    return []


def _folders(document: Document) -> dict[str, Path]:
    """Return for each key that holds a path the folder of the file in which it stands."""
    written = (key for key in _PATHS if key in document.nodes)
    return {str(key[-1]): document.nodes[key].origin.folder for key in written}


def _touches(key: Key, others: list[Key]) -> bool:
    """Whether a key is one of the others, or above or below one."""
    return any(key[: len(other)] == other or other[: len(key)] == key for other in others)
