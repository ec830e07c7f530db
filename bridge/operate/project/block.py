"""An entry of a settings file as lines: where it ends, and the file without it. All other lines stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from bridge.errors import SettingsError
from bridge.operate.project.append import raw_settings
from bridge.settings.text.tree import Key


def line_after(key: yaml.Node, value: yaml.Node) -> int:
    """The line after an entry and all that is below its key."""
    while isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        if value.start_mark.index < key.end_mark.index:
            break
        last = value.value[-1]
        key, value = last if isinstance(last, tuple) else (key, last)
    if value.start_mark.index < key.end_mark.index:  # an alias, whose own place is elsewhere
        return int(key.end_mark.line) + 1
    block = isinstance(value, yaml.ScalarNode) and value.style in ("|", ">") and not value.end_mark.column
    return int(value.end_mark.line) + (0 if block else 1)


def behind_comments(lines: Sequence[str], at: int, indent: int) -> int:
    """The line after comments that are indented deeper than the key: they belong to the entry above.

    If such a setting is uncommented, it must be below that entry.
    """
    end = at
    for number in range(at, len(lines)):
        text = lines[number].strip()
        if text and (not text.startswith("#") or lines[number].index("#") <= indent):
            break
        end = number + 1 if text else end
    return end


def without_entries(path: Path, keys: Sequence[Key]) -> bytes:
    """The file without these entries. It is checked that nothing else changes, and not written.

    Raises `SettingsError` if the file is written in a way that only people should edit.
    """
    before = path.read_bytes()
    try:
        text = before.decode()
        for key in sorted(keys, reverse=True):
            text = _without(text, [str(part) for part in key])
        after = text.encode()
        expected = raw_settings(path)
        for key in keys:
            _take(expected, key)
        with TemporaryDirectory() as folder:
            draft = Path(folder) / path.name
            draft.write_bytes(after)
            if raw_settings(draft) != expected:
                raise ValueError("something else would change")
    except (SettingsError, ValueError, LookupError, yaml.YAMLError) as error:
        hint = f"take it out yourself: {', '.join('.'.join(map(str, key)) for key in keys)}"
        raise SettingsError("this file is written in a way that cannot be edited", hint=hint, file=path) from error
    return after


def _without(text: str, parts: Sequence[str]) -> str:
    key, value = _key_and_value(text, parts)
    lines = text.splitlines(keepends=True)
    start, column = key.start_mark.line, key.start_mark.column
    if lines[start][:column].strip():
        raise ValueError("not on a line of its own")
    end = behind_comments(lines, line_after(key, value), column)
    if start and not lines[start - 1].strip() and (end == len(lines) or not lines[end].strip()):
        start -= 1  # the blank line that parted it from its neighbours
    del lines[start:end]
    return "".join(lines)


def _key_and_value(text: str, parts: Sequence[str]) -> tuple[yaml.Node, yaml.Node]:
    """The entry's key, and its value."""
    value: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    key = value
    for part in parts:
        if not isinstance(value, yaml.MappingNode) or value.flow_style:
            raise ValueError("no block")
        if key and key is not value and value.start_mark.index < key.end_mark.index:
            raise ValueError("an alias")
        key, value = next(pair for pair in value.value if pair[0].value == part)
    assert key
    assert value
    return key, value


def _take(settings: Any, key: Key) -> None:
    """Take an entry out of raw settings. A section without entries reads as an empty text."""
    name, *below = key
    if not below:
        del settings[name]
        return
    _take(settings[name], tuple(below))
    settings[name] = settings[name] or ""
