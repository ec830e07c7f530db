"""One YAML file as plain data, with the line of every key.

Plain scalars are read as YAML's JSON schema does: `true`, `null`, `12`, `1.5`; everything else stays text. So `no`,
`22:30`, `007` and `2024-01-01` are what they look like, not False, 1350, 7 and a date, as YAML 1.1 has it.
Duplicate keys are refused, anchors and `<<` work, and no error shows a value: it may be a password.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bridge.errors import SettingsError

__all__ = ["Document", "Key", "read"]

Key = tuple[str | int, ...]
Expand = Callable[[str], tuple[str, list[str]]]

_PLAIN = "!plain"
_TEXT = "tag:yaml.org,2002:str"
_WORDS = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.title(), word.upper())
}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,300})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml where the wheel has it
    """Marks unquoted scalars instead of guessing their type, so that `${PORT}` and `"${PORT}"` can differ."""

    yaml_implicit_resolvers = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012


@dataclass(frozen=True)
class Document:
    """What a file says and where it says it."""

    label: str
    """The file as messages call it."""
    data: Any = field(repr=False)
    lines: dict[Key, int]
    """Line of each key and list item; starts at 1."""
    expanded: list[tuple[Key, str]] = field(repr=False)
    """Text that came out of `${...}`, with the key it went to."""

    def line(self, key: Key) -> int:
        """Return the line of a key, or of the nearest key around it that is written down."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 1)

    def where(self, key: Key) -> str:
        """Return `file:line`, which terminals and editors turn into a link."""
        return f"{self.label}:{self.line(key)}"


def read(path: Path, label: str, expand: Expand, text_under: Callable[[Key], bool]) -> Document:
    """Read the file; every value is expanded but those of `x-*` keys. Raises SettingsError.

    `text_under(key)` says where an unquoted value is text whatever it looks like: the keys of an environment.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = "check the path given with --file"
        raise SettingsError("cannot read the settings file", hint=hint, reason=error.strerror, path=path) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{label}: not UTF-8 text", hint="save the file as UTF-8") from None
    builder = _Builder(label, expand, text_under)
    try:
        root = yaml.compose(text, Loader=_Loader)
        data = None if root is None else builder.build(root, ())
    except yaml.YAMLError as error:
        raise _syntax_error(label, text, error) from None
    except RecursionError:
        raise SettingsError(f"{label}: an alias contains itself", hint="look at the anchors (&name, *name)") from None
    return Document(label, data, builder.lines, builder.expanded)


class _Builder:
    """Turns nodes into data and takes notes: lines, and what was expanded."""

    def __init__(self, label: str, expand: Expand, text_under: Callable[[Key], bool]) -> None:
        self.lines: dict[Key, int] = {}
        self.expanded: list[tuple[Key, str]] = []
        self._label = label
        self._expand = expand
        self._text_under = text_under

    def build(self, node: yaml.Node, key: Key) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {name: self._child(name_node, value, (*key, name)) for name, name_node, value in self._entries(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self._child(item, item, (*key, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, key)

    def _child(self, at: yaml.Node, value: yaml.Node, key: Key) -> Any:
        self.lines[key] = _line(at)
        return self.build(value, key)

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield a mapping's entries, merged ones first; its own win over `<<`."""
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = self._name(key)
            if name in own:
                lines = f"lines={_line(own[name][0])},{_line(key)}"
                hint = "keep one of them" if name != "<<" else "write <<: [*first, *second]"
                raise SettingsError(f"{self._label}:{_line(key)}: duplicate key {name} {lines}", hint=hint)
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
                raise SettingsError(f"{self._label}:{_line(node)}: << needs a mapping", hint="write <<: *anchor")
            for name, key, value in self._entries(source):
                merged.setdefault(name, (key, value))
        return merged

    def _name(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise SettingsError(
                f"{self._label}:{_line(node)}: a key must be text", hint="quote values that contain { }"
            )
        return str(node.value)

    def _scalar(self, node: yaml.Node, key: Key) -> Any:
        where = f"{self._label}:{_line(node)}"
        if node.tag not in (_PLAIN, _TEXT):
            raise SettingsError(f"{where}: yaml tags are not supported", hint="quote the value", key=_dotted(key))
        if str(key[:1] and key[0]).startswith("x-"):  # free keys exist to be referred to; expanded where they are
            return node.value
        try:
            text, found = self._expand(node.value)
        except SettingsError as error:
            raise SettingsError(f"{where}: {error.message}", hint=error.hint, key=_dotted(key)) from None
        value = text if node.tag == _TEXT or self._text_under(key) else _plain(node.value, text)
        if isinstance(value, str):
            self.expanded += [(key, piece) for piece in found]
        return value


def _plain(written: str, text: str) -> Any:
    """Read an unquoted value. `a-${X}` and `${file:...}` are text: only a whole `${X}` stands for a value."""
    partly = "${" in written and not re.fullmatch(r"\$\{[^{}]*\}", written)
    if partly or written.startswith("${file:"):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text


def _syntax_error(label: str, text: str, error: yaml.YAMLError) -> SettingsError:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 1
    lines = text.splitlines()
    # The library quotes what it stumbled over ("undefined alias 'hunter2'"), which may be half a password.
    problem = re.sub(r"'[^']{3,}'", "...", str(getattr(error, "problem", None) or "cannot be read"))
    hint = "quote values that start with a special character, such as @ % * & ! { ["
    if mark and mark.line < len(lines) and "${" in lines[mark.line]:
        hint = 'inside { } and [ ] a variable needs quotes: "${NAME}"'
    return SettingsError(f"{label}:{line}: not valid yaml: {problem}", hint=hint)


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
