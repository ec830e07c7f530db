"""Append a pipeline to bridge.yaml as text: comments, order and all other pipelines stay as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bridge.errors import SettingsError
from bridge.lake.storage.local.folders import draft_of
from bridge.settings.text import yamlfile
from bridge.settings.text.tree import resolve


def raw_settings(path: Path) -> dict[str, Any]:
    """The file's settings, with `${...}` as written. Raises `SettingsError`."""
    data = resolve(yamlfile.read(path), lambda text, _: (text, []), lambda _: True).data
    return data if isinstance(data, dict) else {}


def append_pipeline(path: Path, name: str, body: str, *, onto: bytes | None = None) -> None:
    """Append a pipeline whose block of YAML is `body`. The file is replaced whole, once the new text is checked.

    `onto`: the file's content before an earlier entry of that name, which this one replaces. If anything else would
    change, nothing is written: `SettingsError` has the block to paste.
    """
    path = path.resolve()
    block, base = f"{name}:\n{body}", path.read_bytes() if onto is None else onto
    before = raw_settings(path) if onto is None else {}
    try:
        with draft_of(path) as draft:
            if onto is not None:
                draft.write_bytes(onto)
                before = raw_settings(draft)
            draft.write_bytes(_with_block(base.decode("utf-8-sig"), block).encode())
            _check(before, raw_settings(draft), name)
    except (SettingsError, ValueError) as error:
        hint = f"paste it under pipelines: yourself\n{block}"
        raise SettingsError("this file is written in a way that cannot be appended to", hint=hint, file=path) from error


def _check(before: dict[str, Any], after: dict[str, Any], name: str) -> None:
    """Raise `ValueError` unless the only difference is the new pipeline, which must be the last."""
    pipelines = dict(after.get("pipelines") or {})
    if list(pipelines)[-1:] != [name] or not isinstance(pipelines.pop(name), dict):
        raise ValueError(name)
    if {**before, "pipelines": before.get("pipelines") or {}} != {**after, "pipelines": pipelines}:
        raise ValueError(name)


def _with_block(text: str, block: str) -> str:
    """The text with the block after the last pipeline. Raises `ValueError` if there is no such place."""
    lines = text.splitlines()
    indent, at = _place(text, len(lines))
    new = [" " * (2 if indent is None else indent) + line for line in block.splitlines()]
    if indent is None:
        new.insert(0, "pipelines:")
    before = [""] if at and lines[at - 1].strip() and not lines[at - 1].startswith("pipelines:") else []
    after = [""] if at < len(lines) and lines[at].strip() else []
    lines[at:at] = [*before, *new, *after]
    newline = "\r\n" if "\r\n" in text else "\n"
    return newline.join(lines) + newline


def _place(text: str, end: int) -> tuple[int | None, int]:
    """The indentation of pipelines (None if there are none yet), and the line before which the next one goes."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return None, end
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("no block")
    keys = [key for key, _ in root.value]
    number = next((number for number, key in enumerate(keys) if key.value == "pipelines"), None)
    if number is None:
        return None, end
    pipelines = root.value[number][1]
    below = keys[number + 1].start_mark.line if number + 1 < len(keys) else end
    return _indent(pipelines, keys[number].start_mark.line), _back(text.splitlines(), below, last=below == end)


def _indent(pipelines: yaml.Node, line: int) -> int:
    if isinstance(pipelines, yaml.ScalarNode) and pipelines.value in ("", "null", "~"):
        return 2
    if not isinstance(pipelines, yaml.MappingNode) or pipelines.flow_style or pipelines.start_mark.line < line:
        raise ValueError("no block")
    return int(pipelines.value[0][0].start_mark.column)


def _back(lines: list[str], at: int, *, last: bool) -> int:
    """Go back over blank lines, and over the comment above the next key, which belongs to that key."""
    while at and (not lines[at - 1].strip() or (not last and lines[at - 1].startswith("#"))):
        at -= 1
    return at
