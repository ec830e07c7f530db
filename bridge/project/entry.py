"""The text of a new pipeline: the tap's required settings filled in, its optional ones as comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from bridge.about import About, Setting

__all__ = ["Entry", "scalar", "variable_name"]

_WIDTH = 116  # of a line; the file indents them further
_PLAIN = re.compile(r"([A-Za-z_/]|\.{1,2}/)[A-Za-z0-9_./@+=-]*( ?[A-Za-z0-9_./@+=-]+)*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_EMPTY = {"object": "{}", "array": "[]"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline to write."""

    tap: str | list[str]
    about: About | None
    pip_url: str | None = None
    bucket: str | None = None
    """None: the file's defaults say where."""
    prefix: str = ""
    """Of its variables: the tap's name, or the pipeline's."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What is known already, by setting."""

    @property
    def variables(self) -> list[str]:
        """The variables that its text refers to."""
        return [self._variable(setting) for setting in self._required() if _asks(setting, self.values)]

    @property
    def optional_variables(self) -> list[str]:
        """The variables that its comments refer to: secrets that the tap does not require."""
        required = list(self._required())
        settings = self.about.settings if self.about else ()
        return [self._variable(setting) for setting in settings if setting.secret and setting not in required]

    def text(self) -> str:
        """Return the block of YAML that stands below the pipeline's name."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "  source:"
        yield f"    tap: {scalar(self.tap)}"
        if self.pip_url:
            yield f"    pip_url: {scalar(self.pip_url)}"
        yield from (f"    {line}".rstrip() for line in self._config())
        if self.bucket is not None:
            yield "  destination:"
            yield f"    bucket: {scalar(self.bucket)}"

    def _config(self) -> Iterator[str]:
        required = list(self._required())
        if self.about is None:
            yield "config:   # this tap does not tell its settings: look into its documentation"
            return
        yield "config:"
        for setting in required:
            yield _short(f"  {setting.name}: {self._value(setting)}   # required: {_meaning(setting)}")
        for setting in self.about.settings:
            if setting not in required:
                yield _short(f"  # {setting.name}:{self._suggestion(setting)}   # {_meaning(setting)}")

    def _required(self) -> Iterator[Setting]:
        """Yield what is to be filled in: what the tap requires, and whatever is known."""
        for setting in self.about.settings if self.about else ():
            if setting.required or setting.name in self.values:
                yield setting

    def _value(self, setting: Setting) -> str:
        if setting.name in self.values:
            return _literal(self.values[setting.name])
        if _asks(setting, self.values):
            reference = f"${{{self._variable(setting)}}}"
            return reference if setting.kind in ("integer", "number", "boolean") else f'"{reference}"'
        return _literal(setting.default) if setting.default is not None else _EMPTY[setting.kind]

    def _suggestion(self, setting: Setting) -> str:
        """Return what stands in a comment: the default, or a variable where only a secret's name should be."""
        if setting.secret:
            return f' "${{{self._variable(setting)}}}"'
        return "" if setting.default is None else f" {_literal(setting.default)}"

    def _variable(self, setting: Setting) -> str:
        return variable_name(self.prefix, setting.name)


def variable_name(prefix: str, setting: str) -> str:
    """Return the variable that a setting is written as: `TAP_POSTGRES_PASSWORD`."""
    return re.sub(r"[^A-Z0-9_]", "_", f"{prefix}_{setting}".upper())


def scalar(value: Any) -> str:
    """Return a value as YAML on one line; a `${NAME}` in it stays a variable."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return orjson.dumps(value).decode()  # JSON is YAML, too


def _literal(value: Any) -> str:
    """Return a value as YAML that is read back as the same value, whatever is in it."""
    return scalar(value).replace("${", "$${")


def _asks(setting: Setting, values: Mapping[str, Any]) -> bool:
    """Whether a setting comes from a variable: a secret, and what nobody can guess."""
    if setting.name in values:
        return False
    return setting.secret or (setting.default is None and setting.kind not in _EMPTY)


def _meaning(setting: Setting) -> str:
    choices = f"one of {', '.join(map(str, setting.choices))}" if setting.choices else setting.kind
    return ". ".join(part for part in (choices, setting.description) if part)


def _short(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
