"""Change `source.select` of one pipeline as text: comments, order and everything else stay as they were.

Only the list is changed. Then the new text is read: if it differs in anything but the list, the file stays as it is,
and the user gets the lines to paste.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bridge.errors import SettingsError
from bridge.lake.storage.local.folders import draft_of
from bridge.operate.project.block import behind_comments, line_after
from bridge.protocol.singer.replication import BREAKS
from bridge.settings.text import yamlfile
from bridge.settings.text.tree import Key, Node

_NAMES = ("select", "streams")
_WIDTH = 100


class _NoPlace(ValueError):
    """The file is written in a way that only people should edit."""


def raw_selection(pipeline: Node) -> list[str] | None:
    """The list in the pipeline's own file, with `${...}` as written; None if there is none."""
    node = _child(_child(pipeline, "source"), "select") or _child(_child(pipeline, "source"), "streams")
    if node is None or not isinstance(node.value, list):
        return None
    return [str(item.value) for item in node.value]


def _child(node: Node | None, key: str) -> Node | None:
    return node.value.get(key) if node and isinstance(node.value, dict) else None


def write_selection(file: Path, pipeline: Key, patterns: Sequence[str]) -> bytes:
    """Write the patterns into the pipeline at that key; return the file's content before.

    The file is replaced whole. Raises `SettingsError` with the lines to paste if it cannot be edited.
    """
    file = file.resolve()
    before = file.read_bytes()
    try:
        text = _edited(before.decode(), [str(part) for part in pipeline], patterns)
        with draft_of(file) as draft:
            draft.write_bytes(text.encode())
            if _without(yamlfile.read(file), pipeline) != _without(yamlfile.read(draft), pipeline):
                raise _NoPlace("something else would change")
            if raw_selection(_at(yamlfile.read(draft), pipeline)) != list(patterns):
                raise _NoPlace("another list would be written")
    except (SettingsError, ValueError, LookupError, yaml.YAMLError) as error:
        hint = f"write it yourself, into {'.'.join(map(str, pipeline))}.source:\n{_line(patterns)}"
        raise SettingsError("this file is written in a way that cannot be edited", hint=hint, file=file) from error
    except OSError as error:
        hint = f"write it yourself, into {'.'.join(map(str, pipeline))}.source:\n{_line(patterns)}"
        raise SettingsError(f"cannot write the settings file: {error.strerror}", hint=hint, file=file) from error
    return before


def _at(node: Node, key: Key) -> Node:
    for part in key:
        node = _child(node, str(part)) or node
    return node


def _without(node: Node, pipeline: Key, key: Key = ()) -> Any:
    """All settings of a file but the pipeline's list."""
    if isinstance(node.value, dict):
        left = {name: child for name, child in node.value.items() if key != (*pipeline, "source") or name not in _NAMES}
        return {name: _without(child, pipeline, (*key, name)) for name, child in left.items()}
    if isinstance(node.value, list):
        return [_without(child, pipeline, (*key, number)) for number, child in enumerate(node.value)]
    return node.value, node.plain


def _quoted(pattern: str) -> str:
    return json.dumps(pattern, ensure_ascii=False).translate(BREAKS)


def _flow(patterns: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, patterns))}]"


def _line(patterns: Sequence[str]) -> str:
    return f"select: {_flow(patterns)}"


def _edited(text: str, pipeline: Sequence[str], patterns: Sequence[str]) -> str:
    """The text with the list. Raises `_NoPlace` if there is no place for it."""
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for part in (*pipeline, "source"):
        node = _value(node, part)
    if not isinstance(node, yaml.MappingNode):
        raise _NoPlace("no mapping")
    pair = next(((key, value) for key, value in node.value if key.value in _NAMES), None)
    if pair is None:
        return _inserted(text, node, patterns)
    key, value = pair
    if value.start_mark.index < key.end_mark.index:
        raise _NoPlace("an alias")
    if isinstance(value, yaml.ScalarNode) and value.value in ("", "null", "~"):
        return (
            text[: key.end_mark.index] + f": {_flow(patterns)}" + text[max(value.end_mark.index, _colon(text, key)) :]
        )
    if not isinstance(value, yaml.SequenceNode) or not all(isinstance(item, yaml.ScalarNode) for item in value.value):
        raise _NoPlace("no list of texts")
    if not patterns or not value.value:
        end = value.value[-1].end_mark.index if value.value and not value.flow_style else value.end_mark.index
        return text[: key.end_mark.index] + f": {_flow(patterns)}" + text[end:]
    return _rewritten(text, value, patterns)


def _value(node: yaml.Node | None, key: str) -> yaml.Node:
    if not isinstance(node, yaml.MappingNode):
        raise _NoPlace("no mapping")
    result: yaml.Node | None = next((value for name, value in node.value if name.value == key), None)
    if result is None:
        raise _NoPlace("no such key")
    return result


def _colon(text: str, key: yaml.Node) -> int:
    return text.index(":", key.end_mark.index) + 1


def _rewritten(text: str, node: yaml.SequenceNode, patterns: Sequence[str]) -> str:
    """Change a list that is not empty item by item, so that comments beside items stay."""
    unchanged: list[yaml.Node] = []
    for item in node.value:  # what stands in the new order already may stay where it is
        unchanged += [item] if item.value == (*patterns, None)[len(unchanged)] else []
    added = patterns[len(unchanged) :]
    if node.flow_style:
        if "\n" in text[node.start_mark.index : node.end_mark.index]:
            raise _NoPlace("a list in brackets over several lines")
        items = [*(text[item.start_mark.index : item.end_mark.index] for item in unchanged), *map(_quoted, added)]
        return f"{text[: node.start_mark.index]}[{', '.join(items)}]{text[node.end_mark.index :]}"
    lines = text.splitlines(keepends=True)
    end = _newline(text)
    last = node.value[-1].end_mark.line
    if not lines[last].endswith(("\n", "\r")):
        lines[last] += end
    lines[last] += "".join(f"{' ' * node.start_mark.column}- {_quoted(pattern)}{end}" for pattern in added)
    for item in node.value:
        if item not in unchanged:
            new = lines[item.start_mark.line].split(end, 1)[1] if item.start_mark.line == last else ""
            lines[item.start_mark.line] = new
    return "".join(lines)


def _inserted(text: str, source: yaml.MappingNode, patterns: Sequence[str]) -> str:
    """The text with a new key at the end of `source`."""
    key, value = source.value[-1]
    if source.flow_style:
        if value.start_mark.index < key.end_mark.index:
            raise _NoPlace("an alias")
        quote = '"' if text[key.start_mark.index] == '"' else ""  # JSON stays JSON
        entry = f"{quote}select{quote}: {_flow(patterns)}"
        return f"{text[: value.end_mark.index]}, {entry}{text[value.end_mark.index :]}"
    indent, end = " " * source.value[0][0].start_mark.column, _newline(text)
    if source.value[0][0].start_mark.index < source.start_mark.index:
        raise _NoPlace("an alias")
    new = [_line(patterns)]
    if len(new[0]) > _WIDTH:
        new = ["select:", *(f"  - {_quoted(pattern)}" for pattern in patterns)]
    lines = text.splitlines(keepends=True)
    at = behind_comments(lines, line_after(key, value), len(indent))
    if at and not lines[at - 1].endswith(("\n", "\r")):
        lines[at - 1] += end
    lines[at:at] = [f"{indent}{line}{end}" for line in new]
    return "".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
