"""Takes a pipeline out of a project: its settings, its kept catalog, its scratch, its tap's venv if no other needs it.

Nothing of a lake is touched. The settings go last, so after a crash the same removal can be repeated.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import SettingsError, did_you_mean
from bridge.lake.storage.local.folders import draft_of
from bridge.load.tap.source import home_folder
from bridge.load.tap.venv import Venv
from bridge.operate.project.block import without_entries
from bridge.operate.project.taps import installables
from bridge.settings.layers import SettingsLayers, read_project
from bridge.settings.text.tree import Key, Node
from bridge.settings.text.variables import Variables, read_dotenv

_VARIABLE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Removal:
    """The edits and files of a removal, and the variables of `.env` that nobody needs afterwards."""

    name: str
    environments: tuple[str, ...]
    """The environments that the file has."""
    texts: dict[Path, bytes]
    """The new content of the settings files that change."""
    paths: tuple[Path, ...]
    """Files and folders of the project that go."""
    venv: str
    """Why the tap's venv stays; empty if it goes, or there is none."""
    variables: tuple[str, ...]
    """Variables of `.env` and `.env.example` that no settings file names afterwards."""

    def apply(self) -> None:
        """Remove it all. Raises `OSError`; then it can be called again."""
        for path in self.paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for file, text in self.texts.items():
            with draft_of(file) as draft:
                draft.write_bytes(text)


def removal(path: Path, name: str, environ: Mapping[str, str]) -> Removal:
    """Plan the removal of a pipeline. Raises `SettingsError` if nobody knows the name, or the file cannot be edited."""
    path = path.absolute()
    variables = Variables({**read_dotenv(path.parent / ".env"), **environ})
    project = read_project(path, variables.expand)
    node = project.pipelines.get(name)
    if node is None:
        hint = did_you_mean(name, project.pipelines) or f"there are: {', '.join(project.pipelines)}"
        raise SettingsError("unknown pipeline", hint=hint, name=name)
    texts = {file: without_entries(file, keys) for file, keys in _entries(path, project, name, node).items()}
    venv, why = _venv(path, project, name, environ)
    paths = [*_scratch(path, project, name), *([venv] if venv else [])]
    return Removal(name, tuple(project.environments), texts, tuple(paths), why, tuple(_unused(path, project, texts)))


def _entries(path: Path, project: SettingsLayers, name: str, node: Node) -> dict[Path, list[Key]]:
    """The places of the pipeline's settings, by file: its own, and those of environments."""
    entries = {_file(node): [node.key]}
    for environment, over in project.environments.items():
        pipelines = over.value.get("pipelines") if isinstance(over.value, dict) else None
        if pipelines and isinstance(pipelines.value, dict) and name in pipelines.value:
            entries.setdefault(path.resolve(), []).append(("environments", environment, "pipelines", name))
    return entries


def _file(node: Node) -> Path:
    return (node.origin.folder / Path(node.origin.label).name).resolve()


def _scratch(path: Path, project: SettingsLayers, name: str) -> Iterator[Path]:
    """Yield the existing paths that the project keeps of a pipeline on this machine."""
    home = home_folder(path)
    for one in (name, *(f"{environment}.{name}" for environment in project.environments)):
        files = [home / folder / f"{one}.json" for folder in ("catalogs", "catalogs/discovered", "lakes")]
        yield from (file for file in files if file.exists())
        for folder in ("spool", "checkpoint"):
            pattern = re.compile(re.escape(one) + r"-[0-9a-f]{8}")
            with suppress(OSError):
                yield from sorted(each for each in (home / folder).iterdir() if pattern.fullmatch(each.name))


def _venv(path: Path, project: SettingsLayers, name: str, environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """The folder of the tap's venv that goes, or why it stays."""
    own, others, unknown = set[str](), set[str](), list[str]()
    for pipeline in project.pipelines:
        for environment in (None, *project.environments):
            try:
                (tap,) = installables(path, environ, environment, pipeline)
            except SettingsError:
                unknown.append(pipeline)
                continue
            (own if pipeline == name else others).add(tap.source.pip_url or "")
    folders = [folder for url in own - {""} if (folder := Venv(home_folder(path), url).root).exists()]
    if not folders:
        return None, ""
    if shared := own & others - {""}:
        return None, f"{', '.join(sorted(shared))} stays installed: another pipeline uses it"
    if unknown:
        return None, f"{folders[0]} stays: the settings of {unknown[0]} do not say whether it uses it"
    return folders[0], ""


def _unused(path: Path, project: SettingsLayers, texts: Mapping[Path, bytes]) -> Iterator[str]:
    """The variables that only the removed settings name, and a file beside them has."""
    files = {path.resolve(), *map(_file, project.pipelines.values())}
    before = {name for file in texts for name in _VARIABLE.findall(file.read_bytes())}
    after = {name for file in files for name in _VARIABLE.findall(texts[file] if file in texts else file.read_bytes())}
    beside = [path.parent / name for name in (".env", ".env.example")]
    text = b"\n".join(file.read_bytes() for file in beside if file.is_file())
    for name in sorted(before - after):
        if re.search(rb"^[# \t]*(?:export[ \t]+)?" + name + rb"[ \t]*=", text, re.MULTILINE):
            yield name.decode()
