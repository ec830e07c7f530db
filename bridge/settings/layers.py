"""The settings files of a project as layers: bridge.yaml, what it includes, its defaults and environments.

A pipeline is made of four layers, each over the one before: `defaults`, the environment's `defaults`, the pipeline,
the environment's part of it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.explain import Order
from bridge.settings.service import Service
from bridge.settings.system_tables import SystemTables, read_system_tables
from bridge.settings.text import yamlfile
from bridge.settings.text.tree import Expand, Node, Unknown, overlay, resolve
from bridge.settings.values.checked import pipeline_name

_MAIN = ("pipelines", "defaults", "environments", "include", "system_tables", "service")
_OVERLAY = ("pipelines", "defaults")
_INCLUDED = ("pipelines",)
# No dot: `<environment>.<pipeline>` is a name in the bucket, and must be read in one way only.
_ENVIRONMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_START = "write pipelines: with one pipeline under its name"
_TWINS = "another name differs in case only: some file systems would make them one"
_MAPPING = ("must be a mapping", "write its keys below it, or remove it")


@dataclass(frozen=True)
class SettingsLayers:
    """All layers, with variables as written. `problems`: what is wrong with the files themselves, in reading order."""

    pipelines: dict[str, Node] = field(default_factory=dict)
    defaults: Node | None = None
    environments: dict[str, Node] = field(default_factory=dict)
    problems: list[tuple[Order, SettingsError]] = field(default_factory=list)
    system_tables: SystemTables | None = None
    service: Node | None = None
    files: tuple[Path, ...] = ()
    """The paths it was read from: the files, and the folders in which `include` looks."""

    def environment(self, name: str | None) -> str | None:
        """The environment's name; None for none. Raises `SettingsError` if the file does not have it."""
        if not name:
            return None
        if name not in self.environments:
            existing = ", ".join(self.environments)
            hint = (
                f"there are: {existing}"
                if existing
                else "the file has no environments; see --env and SINGER_BRIDGE_ENV"
            )
            raise SettingsError("unknown environment", hint=did_you_mean(name, self.environments) or hint, name=name)
        return name

    def layers(self, pipeline: str, environment: str | None) -> Node:
        """One pipeline with all its layers."""
        defaults, own = self.defaults, self.pipelines[pipeline]
        if environment:
            over = _children(self.environments[environment])
            defaults = overlay(defaults, over.get("defaults"))
            own = overlay(own, _children(over.get("pipelines")).get(pipeline)) or own
        return overlay(defaults, own) or own

    def inherited_globs(self, pipeline: str, environment: str | None) -> frozenset[str]:
        """The globs under `streams` and `mask` that only `defaults` have, not the pipeline itself."""
        over = _children(self.environments[environment]) if environment else {}
        own = [self.pipelines[pipeline], _children(over.get("pipelines")).get(pipeline)]
        defaults = [self.defaults, over.get("defaults")]
        below, above = (
            {g for node in nodes for key in ("streams", "mask") for g in _children(_children(node).get(key))}
            for nodes in (defaults, own)
        )
        return frozenset(below - above)


def _children(node: Node | None) -> dict[str, Node]:
    return node.value if node and isinstance(node.value, dict) else {}


def read_project(path: Path, expand: Expand) -> SettingsLayers:
    """Read bridge.yaml and what it includes. Raises `SettingsError` if bridge.yaml cannot be read.

    `expand` must run no command: a file is not looked for by what a command prints.
    """
    root = yamlfile.read(path)
    if not isinstance(root.value, dict):
        raise SettingsError(f"{root.origin.label}:1: no settings in the file", hint=_START)
    reader = _Reader(path, expand)
    project = reader.main(root)
    project.problems.sort(key=lambda problem: problem[0])
    return project


def _matching(pattern: str, folder: Path) -> list[Path]:
    try:
        names = glob.glob(os.path.expanduser(pattern), root_dir=folder, recursive=True)
    except ValueError:  # a NUL in the name
        return []
    return [path for path in (folder / name for name in sorted(names)) if path.is_file()]


def _folder_of(pattern: str) -> Path:
    """The folder whose files a glob means; where the folder's name has a `*`, the one above it."""
    above = Path(os.path.expanduser(pattern)).parents
    return next((folder for folder in above if not glob.has_magic(str(folder))), Path())


class _Reader:
    """Collects the layers, and what is wrong with them."""

    def __init__(self, path: Path, expand: Expand) -> None:
        self._path, self._expand = path, expand
        self._problems: list[tuple[Order, SettingsError]] = []
        self._pipelines: dict[str, Node] = {}
        self._files = [path]

    def main(self, root: Node) -> SettingsLayers:
        self._refuse_unknown(root, _MAIN, "a pipeline stands under pipelines:, keys of your own start with x-")
        keys = _children(root)
        self._own_pipelines(keys.get("pipelines"))
        if "include" in keys:
            self._include(keys["include"])
        if not self._pipelines and not self._problems:
            node = keys.get("pipelines", root)
            below = () if "pipelines" in keys else ("pipelines",)
            self._note(node, node.error("no pipelines", _START, below=below))
        defaults = keys.get("defaults")
        self._mapping(defaults)
        environments = self._environments(keys.get("environments"))
        self._names(environments)
        system_tables = self._system_tables(keys.get("system_tables"))
        service, service_keys = keys.get("service"), tuple(Service.model_fields)
        if service is not None and self._mapping(service):
            self._refuse_unknown(service, service_keys, f"the keys here are: {', '.join(service_keys)}")
        return SettingsLayers(
            self._pipelines, defaults, environments, self._problems, system_tables, service, tuple(self._files)
        )

    def _note(self, node: Node, error: SettingsError) -> None:
        self._problems.append(((node.origin.label, node.line), error))

    def _mapping(self, node: Node | None) -> bool:
        """Whether there is a mapping. Anything else in its place is noted as a problem."""
        if node is not None and not isinstance(node.value, dict):
            self._note(node, node.error(*_MAPPING))
        return node is not None and isinstance(node.value, dict)

    def _refuse_unknown(self, node: Node, allowed: tuple[str, ...], hint: str) -> None:
        for key, child in _children(node).items():
            if key not in allowed and not key.startswith("x-"):
                self._note(child, child.error("unknown key", did_you_mean(key, allowed) or hint))

    def _own_pipelines(self, node: Node | None) -> None:
        """Add the pipelines of one file, which may be none. A name that another file has is a problem."""
        if node is None or node.value == "" or not self._mapping(node):
            return
        taken = {name.lower(): pipeline for name, pipeline in self._pipelines.items()}
        for name, pipeline in _children(node).items():
            wrong, first = pipeline_name(name), taken.setdefault(name.lower(), pipeline)
            if wrong:
                self._note(pipeline, pipeline.error(*wrong))
            elif first is not pipeline:
                text = "this pipeline exists already" if name in self._pipelines else _TWINS
                self._note(pipeline, pipeline.error(text, "rename one of them", first=first.where))
            else:
                self._pipelines[name] = pipeline

    def _include(self, node: Node) -> None:
        document = resolve(node, self._expand)
        for key, error in document.problems:
            self._note(document.nodes[key], error)
        for key in document.unrun:
            self._note(document.nodes[key], document.nodes[key].error("no ${cmd:...} here", "write the file's name"))
        if not isinstance(node.value, list) or not all(isinstance(pattern, str) for pattern in document.data):
            self._note(node, node.error("must be a list of files", "such as [pipelines/*.yaml]"))
            return
        seen = {self._path.resolve()}
        for pattern, item in zip(document.data, node.value, strict=True):
            if isinstance(pattern, Unknown):
                continue
            paths = _matching(pattern, self._path.parent)
            if not paths and not glob.has_magic(pattern) and not document.problems:
                self._note(item, item.error("no such file", f"relative paths start at {self._path.parent}"))
            self._files.append(self._path.parent / _folder_of(pattern))
            for path in paths:
                if path.resolve() not in seen:
                    seen.add(path.resolve())
                    self._files.append(path)
                    self._included(path, item)

    def _included(self, path: Path, item: Node) -> None:
        """Add the pipelines of an included file, which may be empty."""
        try:
            root = yamlfile.read(path)
        except SettingsError as error:
            self._note(item, error)
            return
        if root.value == "":
            return
        if self._mapping(root):
            self._refuse_unknown(
                root, _INCLUDED, "an included file holds pipelines and x-* keys; the rest is for the main one"
            )
            self._own_pipelines(_children(root).get("pipelines"))

    def _environments(self, node: Node | None) -> dict[str, Node]:
        if not self._mapping(node):
            return {}
        environments = _children(node)
        for name, overlaid in environments.items():
            if name.lower() in [other.lower() for other in environments if other != name]:
                self._note(overlaid, overlaid.error(_TWINS, "rename one of them"))
            if not _ENVIRONMENT.fullmatch(name):
                hint = "letters, digits, dash and underscore, at most 40; no dot"
                self._note(overlaid, overlaid.error("not a name for an environment", hint))
            if self._mapping(overlaid):
                self._refuse_unknown(overlaid, _OVERLAY, "an environment holds defaults and pipelines")
                self._mapping(_children(overlaid).get("defaults"))
                self._overlaid(_children(overlaid).get("pipelines"))
        return environments

    def _system_tables(self, node: Node | None) -> SystemTables | None:
        if node is None or not self._mapping(node):
            return None
        self._refuse_unknown(node, ("path",), "there is only path")
        try:
            return read_system_tables(node, self._expand)
        except SettingsError as error:
            self._note(node, error)
            return None

    def _overlaid(self, node: Node | None) -> None:
        """An environment changes pipelines and adds none: a typing error must not become a pipeline."""
        if node is not None and node.value != "" and self._mapping(node):
            for name, pipeline in _children(node).items():
                if name not in self._pipelines:
                    guess = did_you_mean(name, self._pipelines) or "write it under pipelines: first"
                    self._note(pipeline, pipeline.error("unknown pipeline", guess))

    def _names(self, environments: Iterable[str]) -> None:
        """Refuse a pipeline named as another one is in an environment: they would share their STATE."""
        prefixes = tuple(f"{environment}.".lower() for environment in environments)
        for name, pipeline in self._pipelines.items():
            if name.lower().startswith(prefixes):
                text = "a pipeline's name cannot begin with an environment's and a dot"
                self._note(pipeline, pipeline.error(text, "rename the pipeline or the environment"))
