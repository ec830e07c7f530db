"""One YAML file as a tree, with the line of every key.

Plain scalars are read as YAML's JSON schema does: `true`, `null`, `12`, `1.5`; everything else stays text. So `no`,
`22:30`, `007` and `2024-01-01` are what they look like, not False, 1350, 7 and a date, as YAML 1.1 has it.
Duplicate keys are refused, anchors and `<<` work, and no error shows a value: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from bridge.errors import SettingsError
from bridge.settings.text.tree import Key, Node, Origin

_PLAIN = "!plain"
_TEXT = "tag:yaml.org,2002:str"
_MOST = 16 << 20
"""Limit of a file's size after its aliases are followed, in bytes: a few nested ones could fill all memory."""
_NODE = 64
"""Bytes counted for a value beside its text."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml where the wheel has it
    """Marks unquoted scalars instead of guessing their type, so that `${PORT}` and `"${PORT}"` can differ."""

    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012


def read(path: Path) -> Node:
    """The file's tree; an empty file is an empty text. Raises `SettingsError`."""
    origin = Origin(_label(path), path.parent)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = "check the path, and who may read it"
        raise SettingsError("cannot read the settings file", hint=hint, reason=error.strerror, path=path) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{origin.label}: not UTF-8 text", hint="save the file as UTF-8") from None
    try:
        root = yaml.compose(text, Loader=_Loader)
        return Node("", origin, (), 1, plain=True) if root is None else _Builder(origin).build(root, (), 1)
    except yaml.YAMLError as error:
        raise _syntax_error(origin.label, text, error) from None
    except RecursionError:
        raise SettingsError(
            f"{origin.label}: an alias contains itself", hint="look at the anchors (&name, *name)"
        ) from None


def _label(path: Path) -> str:
    """The path for messages: relative if the file is below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class _Builder:
    """Turns YAML's nodes into ours: aliases and `<<` are followed; a value has the line of its key."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._size = 0

    def build(self, node: yaml.Node, key: Key, line: int) -> Node:
        self._count(node)
        if isinstance(node, yaml.MappingNode):
            entries = {name: self.build(value, (*key, name), _line(at)) for name, at, value in self._entries(node)}
            return Node(entries, self._origin, key, line)
        if isinstance(node, yaml.SequenceNode):
            items = [self.build(item, (*key, index), _line(item)) for index, item in enumerate(node.value)]
            return Node(items, self._origin, key, line)
        if node.tag not in (_PLAIN, _TEXT):
            dotted = ".".join(str(part) for part in key)
            raise self._error(node, "yaml tags are not supported", "quote the value", key=dotted)
        return Node(node.value, self._origin, key, line, plain=node.tag == _PLAIN)

    def _count(self, node: yaml.Node) -> None:
        """Refuse a file whose aliases make it too large."""
        self._size += _NODE + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if self._size > _MOST:
            hint = "look for anchors (&name) that hold many aliases (*name), and write less of them"
            raise self._error(node, f"with its aliases the file comes to more than {_MOST >> 20} MiB", hint)

    def _error(self, node: yaml.Node, text: str, hint: str, **facts: str) -> SettingsError:
        return SettingsError(f"{self._origin.label}:{_line(node)}: {text}", hint=hint, **facts)

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield a mapping's entries, merged ones first. Its own win over those of `<<`."""
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            self._count(key)
            name = self._name(key)
            if name in own:
                hint = "keep one of them" if name != "<<" else "write <<: [*first, *second]"
                raise self._error(key, f"duplicate key {name}", hint, lines=f"{_line(own[name][0])},{_line(key)}")
            own[name] = (key, value)
            if name == "<<" and key.tag == _PLAIN:
                merged = self._merge(value)
        own = {name: pair for name, pair in own.items() if name != "<<" or pair[0].tag != _PLAIN}
        for name, (key, value) in (merged | own).items():
            yield name, key, value

    def _merge(self, node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                raise self._error(node, "<< needs a mapping", "write <<: *anchor")
            for name, key, value in self._entries(source):
                merged.setdefault(name, (key, value))
        return merged

    def _name(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key must be text", "quote values that contain { }")
        return str(node.value)


def _syntax_error(label: str, text: str, error: yaml.YAMLError) -> SettingsError:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    # The library quotes the text in question ("undefined alias 'hunter2'"), which may be part of a password.
    problem = re.sub(r"'[^']{3,}'", "...", str(getattr(error, "problem", None) or "cannot be read"))
    hint = "quote values that start with a special character, such as @ % * & ! { ["
    if mark and mark.line < len(lines) and "${" in lines[mark.line]:
        hint = 'inside { } and [ ] a variable needs quotes: "${NAME}"'
    if mark and (slip := _common_slip(lines, min(mark.line, len(lines) - 1))):
        hint = slip
    return SettingsError(f"{label}:{line}: not valid yaml: {problem}", hint=hint)


def _common_slip(lines: list[str], at: int) -> str:
    """The hint for frequent mistakes: tabs, and settings below a `{}`. `at`: the line at which reading ended."""
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in lines[: at + 1]):
        return "indent with spaces: YAML takes no tabs"
    above = next((line for line in reversed(lines[:at]) if line.strip() and not line.lstrip().startswith("#")), "")
    if re.search(r":\s*(\{\s*\}|\[\s*\])\s*(#.*)?$", above):
        return f"take the {'{}' if '{' in above.split('#')[0] else '[]'} away from the line above: a block follows"
    return _indentation(lines, at)


def _indentation(lines: list[str], at: int) -> str:
    """The hint for a key whose indentation matches no key above."""
    key = re.match(r"( *)([\w.*-]+|\"[^\"]*\")\s*:(\s|$)", lines[at])
    above = [line for line in lines[:at] if line.strip() and not line.lstrip().startswith("#")]
    if not key or not above:
        return ""
    indent, last = len(key[1]), len(above[-1]) - len(above[-1].lstrip())
    open_ = re.search(r":\s*(#.*)?$", above[-1])
    if indent > last and not open_:
        return "this key stands deeper than the line above, which has a value: line it up with the keys it belongs to"
    if indent < last and indent not in {len(line) - len(line.lstrip()) for line in above}:
        return "this key lines up with no key above: give it the indentation of the keys it belongs to"
    return ""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
