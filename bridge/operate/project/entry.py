"""The text of a new pipeline: the tap's required settings, and as comments the others that somebody has to decide."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import orjson

from bridge.load.tap.about import About, Setting
from bridge.protocol.singer.replication import BREAKS

_WIDTH = 114
"""Characters of a line below `source`; the file indents them by six more."""
_PLAIN = re.compile(r"([A-Za-z_/]|\.{1,2}/)[A-Za-z0-9_./@+=-]*( ?[A-Za-z0-9_./@+=-]+)*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_EMPTY = {"object": "{}", "array": "[]"}
_FEW = 12
"""A tap with no more optional settings than these has all of them in the file."""
_SOURCE = frozenset(
    {
        *("host", "hostname", "server", "port", "user", "username", "password", "database", "dbname", "db_name"),
        *("url", "api_url", "base_url", "api_key", "token", "access_token", "auth_token", "refresh_token"),
        *("client_id", "client_secret", "account", "subdomain", "domain", "site", "tenant"),
        *("path", "filepath", "start_date", "filter_schemas", "filter_dbs"),
    }
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def finds_source(setting: Setting) -> bool:
    """Whether a tap finds its source by this setting, or what to read of it: the user has to decide it."""
    return setting.name in _SOURCE


@dataclass(frozen=True, slots=True)
class Entry:
    """One pipeline to write."""

    tap: str | list[str]
    about: About | None
    pip_url: str | None = None
    bucket: str | None = None
    """None: the file's defaults have it."""
    prefix: str = ""
    """Prefix of its variables: the tap's name, or the pipeline's."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that are known already, by setting."""
    needed: Collection[str] = ()
    """Settings to write besides those that the tap requires: their variables are set."""
    select: Sequence[str] = ()
    """Patterns of `source.select`."""
    streams: Sequence[str] = ()
    """Lines of `streams`."""
    name: str = "NAME"
    """The pipeline's name."""

    @property
    def variables(self) -> list[str]:
        return [self._variable(setting) for setting in self._required() if _asks(setting, self.values)]

    @property
    def optional_variables(self) -> list[str]:
        """The variables in its comments: optional secrets."""
        return [self._variable(setting) for setting in self._shown() if setting.secret]

    def text(self) -> str:
        """The block of YAML for the lines below the pipeline's name."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "  source:"
        yield f"    tap: {scalar(self.tap)}"
        if self.pip_url:
            yield f"    pip_url: {scalar(self.pip_url)}"
        if self.select:
            patterns = (orjson.dumps(one).decode().translate(BREAKS).replace("${", "$${") for one in self.select)
            yield f"    select: [{', '.join(patterns)}]"
        yield from (f"    {line}".rstrip() for line in self._config())
        if self.bucket is not None:
            yield "  destination:"
            yield f"    bucket: {scalar(self.bucket)}"
        if self.streams:
            yield "  streams:"
            yield from (f"    {line}" for line in self.streams)

    def _config(self) -> Iterator[str]:
        if self.about is None:
            yield "config:   # this tap does not list its settings: see its documentation"
            return
        yield "config:"
        for setting in self._required():
            yield from _explained(f"{scalar(setting.name)}: {self._value(setting)}", _meaning(setting, brief=True))
        shown = self._shown()
        if shown:
            yield from ('  ## Optional settings: take "# " away from a line to set one.', "  ##")
        for setting in shown:
            yield from _explained(
                f"# {scalar(setting.name)}:{self._suggestion(setting)}", _meaning(setting, brief=True)
            )
        if more := len(self._optional()) - len(shown):
            count = f"{more} more" if shown else f"{more} optional"
            yield f"  ## The tap has {count} settings: singer-bridge config tap {self.name}"

    def all_settings(self) -> Iterator[str]:
        """Yield every setting as lines for `config`, the optional ones as comments, with all that the tap says."""
        for setting in self._required():
            yield from _explained(f"{scalar(setting.name)}: {self._value(setting)}", _meaning(setting))
        for setting in self._optional():
            yield from _explained(f"# {scalar(setting.name)}:{self._suggestion(setting)}", _meaning(setting))

    def _optional(self) -> list[Setting]:
        required = list(self._required())
        return [setting for setting in (self.about.settings if self.about else ()) if setting not in required]

    def _shown(self) -> list[Setting]:
        """The optional settings that are written as comments: all if they are few, else those to decide."""
        optional = self._optional()
        return optional if len(optional) <= _FEW else [setting for setting in optional if finds_source(setting)]

    def _required(self) -> Iterator[Setting]:
        """Yield the settings to write: those that the tap requires, and those with a known value."""
        for setting in self.about.settings if self.about else ():
            if setting.required or setting.name in self.values or setting.name in self.needed:
                yield setting

    def _value(self, setting: Setting) -> str:
        if setting.name in self.values:
            return _literal(self.values[setting.name])
        if _asks(setting, self.values):
            reference = f"${{{self._variable(setting)}}}"
            return reference if setting.kind in ("integer", "number", "boolean") else f'"{reference}"'
        return _literal(setting.default) if setting.default is not None else _EMPTY[setting.kind]

    def _suggestion(self, setting: Setting) -> str:
        """The value for a comment: the default, or the variable of a secret."""
        if setting.secret:
            return f' "${{{self._variable(setting)}}}"'
        if setting.default is None:
            return f" {_EMPTY[setting.kind]}" if setting.kind in _EMPTY else ""
        return f" {_literal(setting.default)}"

    def _variable(self, setting: Setting) -> str:
        return variable_name(self.prefix, setting.name)


def variable_name(prefix: str, setting: str) -> str:
    """The variable for a setting: `TAP_POSTGRES_PASSWORD`."""
    return re.sub(r"[^A-Z0-9_]", "_", f"{prefix}_{setting}".upper())


def scalar(value: Any) -> str:
    """A value as YAML on one line. A `${NAME}` in it stays a variable."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return orjson.dumps(value).decode().translate(BREAKS)  # JSON is YAML, too


def _literal(value: Any) -> str:
    """A value as YAML that is read back as exactly this value."""
    return scalar(value).replace("${", "$${")


def _asks(setting: Setting, values: Mapping[str, Any]) -> bool:
    """Whether a setting comes from a variable: secrets do, and settings without a default."""
    if setting.name in values:
        return False
    return setting.secret or (setting.default is None and setting.kind not in _EMPTY)


def _meaning(setting: Setting, *, brief: bool = False) -> str:
    """The meaning of a setting; `brief`: only the first sentence of it."""
    choices = f"one of {', '.join(map(str, setting.choices))}" if setting.choices else setting.kind
    description = _SENTENCE.split(setting.description)[0] if brief else setting.description
    meaning = ". ".join(part for part in (choices, description) if part)
    meaning = " ".join(meaning.split())  # a line break would end the comment
    return f"required: {meaning}" if setting.required else meaning


def _explained(line: str, meaning: str) -> Iterator[str]:
    """Yield a setting with its meaning: on the same line if there is room, else on lines above it.

    These begin with `##`: after a whole block is uncommented they are still comments.
    """
    if len(f"  {line}   # {meaning}") <= _WIDTH:
        yield f"  {line}   # {meaning}"
        return
    yield from (f"  ## {text}" for text in wrap(meaning, _WIDTH - 5, break_long_words=False, break_on_hyphens=False))
    yield f"  {line}"
