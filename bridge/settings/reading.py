"""Read one pipeline of a project: fill in its variables, check it, and explain what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.explain import InFile, explained
from bridge.settings.layers import SettingsLayers
from bridge.settings.options import Keys, Pipeline, Source
from bridge.settings.secrets import config_file, shown_to_all, with_secrets
from bridge.settings.text.tree import Document, Expand, Key, Node, resolve
from bridge.settings.values.checked import pipeline_name

Read = tuple[Pipeline | None, list[tuple[Key, SettingsError]]]
"""A pipeline, or all that is wrong with it, in reading order."""

_CONFIG: Key = ("source", "config")
_LAKE = ("destination", "spool", "schedule", "reconcile", "streams", "views", "stale_after")
_BUCKET = ("destination", "retention")
_PATHS: tuple[Key, ...] = (
    _CONFIG,
    *(("source", key) for key in ("tap", "catalog")),
    ("destination", "bucket"),
    ("spool", "dir"),
    ("metrics", "textfile"),
)


def _is_text(key: Key) -> bool:
    """Environments and Spark's settings are text: `PORT: 5432`, `ZIP: 007` and `FLAG: true` mean what is written."""
    return key[:2] in (("source", "env"), ("spark", "conf")) and key[2:] != ()


def read_pipeline(
    project: SettingsLayers,
    expand: Expand,
    name: str,
    environment: str | None,
    *,
    source: bool = True,
    tables: bool = False,
) -> Read:
    """A pipeline, or all that is wrong with it, in reading order.

    `source=False` reads only what it takes to look at the lake: no password has to be set, and none must be hidden.
    With `tables` it reads all but the source, as it takes to write to tables.
    """
    layers = project.layers(name, environment)
    without_source = not source and isinstance(layers.value, dict)
    if without_source:
        layers = replace(layers, value=_without_source(layers) if tables else _lake_part(layers))
    document = resolve(layers, expand, _is_text)
    if without_source:
        document.data["source"] = Source.model_construct(tap=[])
    pipeline, problems = _read(document, f"{environment}.{name}" if environment else name)
    if without_source and any(is_missing(error) for _, error in problems):  # perhaps the key is there, but misspelt
        every = read_pipeline(project, expand, name, environment)[1]
        problems = _without_echoes([*(one for one in every if _is_unknown(one[1])), *problems])
    if pipeline is not None and (system := project.system_tables):
        if source and (clash := system.clash(pipeline.table_root)):
            return None, [((), clash)]
        pipeline = pipeline.model_copy(update={"system_tables": system.path})
    if pipeline is not None and (inherited := project.inherited_globs(name, environment)):
        pipeline = pipeline.model_copy(update={"inherited": inherited})
    return pipeline, problems


def read_bucket(project: SettingsLayers, expand: Expand, name: str, environment: str | None) -> Pipeline | None:
    """A pipeline with nothing but its name, its bucket and its retention; None if one of them is wrong."""
    layers = project.layers(name, environment)
    document = resolve(replace(layers, value=_lake_part(layers, _BUCKET)), expand, _is_text)
    document.data["source"] = Source.model_construct(tap=[])
    return _read(document, f"{environment}.{name}" if environment else name)[0]


def _without_source(layers: Node) -> dict[str, Node]:
    """The settings of a pipeline that say how its tables are written, not what comes from its source."""
    keys = layers.value if isinstance(layers.value, dict) else {}
    return {key: node for key, node in keys.items() if key not in ("source", "mask", "mask_key")}


def _lake_part(layers: Node, parts: tuple[str, ...] = _LAKE) -> dict[str, Node]:
    """The settings of a pipeline that say where its lake is, and what its streams are."""
    keys = layers.value if isinstance(layers.value, dict) else {}
    sections = {key: keys[key] for key in parts if key in keys}
    for key, below in (("destination", ("bucket", "s3", "azure", "gcs")), ("spool", ("dir",))):
        section = sections[key].value if key in sections else None
        if isinstance(section, dict):
            sections[key] = replace(sections[key], value={name: section[name] for name in section if name in below})
    return sections


def _read(document: Document, full: str) -> Read:
    place, problems, unknown = InFile(document), list(document.problems), document.unknown
    for key, reason in ((key, shown_to_all(key)) for key, piece in document.expanded if piece.of_command):
        if reason:
            problems.append((key, place.error(key, f"{reason[0]}: no ${{cmd:...}} here", reason[1])))
    if wrong := pipeline_name(full):
        problems.append(((), place.error((), *wrong)))
    try:
        keys = Keys.model_validate(document.data, context={"folders": _folders(document)})
        pipeline = Pipeline.model_validate({"name": full, **{key: getattr(keys, key) for key in Keys.model_fields}})
        if not problems:
            places = {name: document.nearest(("views", name))[0].where for name in pipeline.views}
            pipeline = pipeline.model_copy(update={"view_places": places})
            return with_secrets(pipeline, document.expanded, place), []
    except ValidationError as error:
        # What a variable would have brought was not checked, only what is written in its place.
        problems += [
            (key, one) for key, one in explained(error, place) if _is_unknown(one) or not _touches(key, unknown)
        ]
    except SettingsError as error:
        return None, [] if _CONFIG in unknown else [(_CONFIG, error)]
    problems += _config_problems(document, place)
    return None, sorted(_without_echoes(problems), key=lambda problem: place.order(problem[0]))


def is_missing(error: SettingsError) -> bool:
    """Whether a key is missing, rather than wrong."""
    return ": missing key key=" in error.message


def _is_unknown(error: SettingsError) -> bool:
    return ": unknown key " in error.message


def _without_echoes(problems: list[tuple[Key, SettingsError]]) -> list[tuple[Key, SettingsError]]:
    """Leave out keys that are missing only because they are misspelt: there is an error for that already."""
    unknown = [key for key, error in problems if _is_unknown(error)]

    def misspelt(key: Key) -> bool:
        siblings = [str(other[-1]) for other in unknown if other[:-1] == key[:-1]]
        return any(did_you_mean(name, [str(key[-1])]) for name in siblings)

    return [(key, error) for key, error in problems if not (is_missing(error) and key and misspelt(key))]


def _config_problems(document: Document, place: InFile) -> list[tuple[Key, SettingsError]]:
    """The problems of the file with the tap's settings; none if they are in no file."""
    node = document.nodes.get(_CONFIG)
    if node is None or not isinstance(node.value, str) or _CONFIG in document.unknown:
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
    """Return, for each key that holds a path, the folder of its settings file."""
    written = (key for key in _PATHS if key in document.nodes)
    return {str(key[-1]): document.nodes[key].origin.folder for key in written}


def _touches(key: Key, others: list[Key]) -> bool:
    """Whether a key is one of the others, or above or below one of them."""
    return any(key[: len(other)] == other or other[: len(key)] == key for other in others)
