"""The settings of a pipeline after all layers, written as in a settings file. Secrets are `***`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import WithJsonSchema
from pydantic.fields import FieldInfo

from bridge.settings.options import Keys, Pipeline
from bridge.settings.redact import SECRET_KEY, SPARK_SECRET, redactor
from bridge.settings.text.tree import Key
from bridge.settings.values.section import Section
from bridge.settings.values.units import SIZE, duration_text, size_text

_HIDDEN = "***"
_SAFE = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*|[0-9]+([smhd]|[KMGT]iB)")
_WORDS = frozenset({"true", "false", "null"})


def effective(pipeline: Pipeline, *, every: bool) -> tuple[dict[str, Any], set[Key]]:
    """The settings with secrets masked, and the keys of defaults, which only `every` includes."""
    defaults: set[Key] = set()
    data = _section(pipeline, every, (), defaults)
    source, conf = data["source"], data.get("spark", {}).get("conf", {})
    if not pipeline.source.tap:
        source.pop("tap")  # a bucket can be looked at without one
    for key in ("config", "env"):
        if isinstance(source.get(key), dict):
            source[key] = _masked(source[key], SECRET_KEY)
    if conf:
        data["spark"]["conf"] = _masked(conf, SPARK_SECRET)
    return _redacted(data, redactor(pipeline.secrets)), defaults


def _section(section: Section, every: bool, at: Key, defaults: set[Key]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    fields = Keys.model_fields if isinstance(section, Pipeline) else type(section).model_fields
    for name, field in fields.items():
        value, key = getattr(section, name), (*at, name)
        if isinstance(value, Section):
            if inner := _section(value, every, key, defaults):
                data[name] = inner
        elif name == "streams" and value:
            data[name] = {glob: _section(keys, False, (*key, glob), defaults) for glob, keys in value.items()}
        elif value and isinstance(value, list) and isinstance(value[0], Section):
            data[name] = [_section(each, every, (*key, str(n)), defaults) for n, each in enumerate(value)]
        elif _is_given(section, name, value) or every:
            data[name] = _written(value, field)
            if not _is_given(section, name, value):
                defaults.add(key)
    return data


def _is_given(section: Section, name: str, value: Any) -> bool:
    """Whether the setting was written, rather than a default."""
    if isinstance(section, Pipeline):
        return bool(value != Keys.model_fields[name].get_default(call_default_factory=True))
    return name in section.model_fields_set


def _written(value: Any, field: FieldInfo) -> Any:
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, Path):
        return str(value)
    schemas = (item.json_schema or {} for item in field.metadata if isinstance(item, WithJsonSchema))
    return size_text(value) if any(schema.get("pattern") == SIZE for schema in schemas) else value


def _masked(value: Any, secret: re.Pattern[str]) -> Any:
    if isinstance(value, dict):
        return {key: _HIDDEN if secret.search(str(key)) else _masked(child, secret) for key, child in value.items()}
    return [_masked(child, secret) for child in value] if isinstance(value, list) else value


def _redacted(value: Any, redact: Callable[[bytes], bytes]) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(child, redact) for key, child in value.items()}
    if isinstance(value, list):
        return [_redacted(child, redact) for child in value]
    if isinstance(value, str):
        return redact(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
    return value


def to_yaml(data: dict[str, Any], defaults: Collection[Key] = (), at: Key = ()) -> Iterator[str]:
    """Yield the data as lines of YAML that our own reader reads as the same data. A comment marks defaults."""
    for name, value in data.items():
        key, indent = (*at, name), "  " * len(at)
        if isinstance(value, dict) and value:
            yield f"{indent}{_scalar(name)}:"
            yield from to_yaml(value, defaults, key)
        else:
            yield f"{indent}{_scalar(name)}: {_flow(value)}" + ("  # default" if key in defaults else "")


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(name)}: {_flow(child)}" for name, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    """A text as YAML that is read back as the same text."""
    if _SAFE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)
