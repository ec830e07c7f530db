"""Settings files as a tree. Every value knows where it is written.

Layers are merged before variables are looked up, so a value that is overridden is never expanded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError

Key = tuple[str | int, ...]


class Unknown(str):
    """A text with `***` for what a command would print that was not run. It stands for any text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """The text that a `${...}` brought."""

    text: str = field(repr=False)
    of_command: bool = False
    """A command's output is a secret, wherever it stands."""


Expand = Callable[[str, Path], tuple[str, list[Expansion]]]
"""Fills in the `${...}` of a text from a file in that folder; returns what they brought, too."""

_WORDS = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.title(), word.upper())
}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,300})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Origin:
    """A settings file."""

    label: str
    """The file's name in messages."""
    folder: Path
    """The folder in which its relative paths start."""


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping, a list or the text of a scalar, with variables as written."""

    value: dict[str, Node] | list[Node] | str = field(repr=False)
    origin: Origin
    key: Key
    """From the top of its file."""
    line: int
    """Starts at 1."""
    plain: bool = False
    """An unquoted scalar: it may be a number, true, false or null."""

    @property
    def where(self) -> str:
        """`file:line`, which terminals and editors turn into a link."""
        return f"{self.origin.label}:{self.line}"

    def error(self, text: str, hint: str, *, below: Key = (), **facts: Any) -> SettingsError:
        """The error for this node, or for a key `below` that is not written."""
        dotted = ".".join(str(part) for part in (*self.key, *below))
        if text == "unknown key":
            return SettingsError(f"{self.where}: {text} {dotted}", hint=hint, **facts)
        return SettingsError(f"{self.where}: {text}", hint=hint, **({"key": dotted} if dotted else {}), **facts)


@dataclass(frozen=True)
class Document:
    """A tree as plain data. Keys start at the tree's root."""

    data: Any = field(repr=False)
    nodes: dict[Key, Node]
    expanded: list[tuple[Key, Expansion]] = field(repr=False)
    """The text that each `${...}` brought, with the key that it went to."""
    problems: list[tuple[Key, SettingsError]]
    """Variables without a value; the data has `${...}` as written instead."""

    @property
    def unrun(self) -> list[Key]:
        """The keys that depend on a command that was not run."""
        return [key for key, piece in self.expanded if isinstance(piece.text, Unknown)]

    @property
    def unknown(self) -> list[Key]:
        """The keys whose values are not known: of no variable, or of a command that was not run."""
        return [*(key for key, _ in self.problems), *self.unrun]

    def nearest(self, key: Key) -> tuple[Node, Key]:
        """The node of a key, or of the nearest key around it that is written, and what is missing below."""
        length = len(key)
        while length and key[:length] not in self.nodes:
            length -= 1
        return self.nodes[key[:length]], key[length:]


def _spelled(children: dict[str, Node], at: Key) -> dict[str, Node]:
    """The children under their own names: `source.streams` is another spelling of `source.select`."""
    if at != ("source",) or "streams" not in children or "select" in children:
        return children
    return {"select" if name == "streams" else name: child for name, child in children.items()}


def overlay(base: Node | None, over: Node | None, at: Key = ()) -> Node | None:
    """Two layers as one: mappings are merged, scalars and lists replaced. `at` is their key in a pipeline.

    Globs under `streams` that the upper layer has come last, as there the last match wins.
    """
    if base is None or over is None:
        return over or base
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        empty = at == ("source", "config") and over.plain and over.value in ("", "null", "~")
        return base if empty and isinstance(base.value, dict) else over
    merged = dict(_spelled(base.value, at))
    for name, node in _spelled(over.value, at).items():
        below = merged.pop(name, None) if at == ("streams",) else merged.get(name)
        merged[name] = overlay(below, node, (*at, name)) or node
    return Node(merged, over.origin, over.key, over.line)


def resolve(node: Node, expand: Expand, text_under: Callable[[Key], bool] = lambda _: False) -> Document:
    """The tree as data with its variables filled in.

    `text_under(key)` says where an unquoted value is text whatever it looks like: the keys of an environment.
    """
    document = Document(None, {}, [], [])

    def build(node: Node, key: Key) -> Any:
        document.nodes[key] = node
        if isinstance(node.value, dict):
            return {name: build(child, (*key, name)) for name, child in _spelled(node.value, key).items()}
        if isinstance(node.value, list):
            return [build(item, (*key, index)) for index, item in enumerate(node.value)]
        try:
            text, pieces = expand(node.value, node.origin.folder)
        except SettingsError as error:
            document.problems.append((key, node.error(error.message, error.hint)))
            return node.value
        if any(isinstance(piece.text, Unknown) for piece in pieces):
            text = Unknown(text)
        value = _plain(node.value, text) if node.plain and not text_under(key) else text
        if isinstance(value, str):
            document.expanded.extend((key, piece) for piece in pieces)
        return value

    return Document(build(node, ()), document.nodes, document.expanded, document.problems)


def _plain(written: str, text: str) -> Any:
    """Read an unquoted value. `a-${X}`, `${file:...}` and `${cmd:...}` are text: only a whole `${X}` is a value."""
    partly = "${" in written and not re.fullmatch(r"\$\{[^{}]*\}", written)
    if partly or written.startswith(("${file:", "${cmd:")):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text
