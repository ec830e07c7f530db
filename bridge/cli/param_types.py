"""Types of flags beside text and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import click

from bridge.errors import SettingsError
from bridge.settings.values.request import Window
from bridge.settings.values.units import MIB, parse_duration, parse_size

_T = TypeVar("_T")


class _Kind(click.ParamType, Generic[_T]):  # type: ignore[type-arg]  # generic only in the newest click
    """A value written as in the settings file. One that is not `enough` is refused as `little`."""

    def __init__(self, name: str, read: Callable[[Any], _T], enough: Callable[[_T], bool], little: str) -> None:
        self.name, self._read, self._enough, self._little = name, read, enough, little

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _T:
        if not isinstance(value, str):
            return cast("_T", value)  # a default, which click converts as well
        try:
            result = self._read(value)
        except SettingsError as error:
            self.fail(f"{value!r} is {error.message}: {error.hint}", param, ctx)
        if not self._enough(result):
            self.fail(f"{value!r} is {self._little}", param, ctx)
        return result


DURATION = _Kind("duration", parse_duration, bool, "no time at all")
"""Such as 30m; longer than zero."""

WINDOW = _Kind("window", Window.read, bool, "nothing")
"""Such as 2024-01-01..2024-03-01."""

SIZE = _Kind("size", parse_size, lambda size: size >= MIB, "less than 1MiB")
"""Such as 256MiB; at least 1MiB."""
