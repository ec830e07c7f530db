"""What flags take beside text and numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from bridge.errors import SettingsError
from bridge.settings.units import MIB, parse_duration, parse_size

__all__ = ["DURATION", "SIZE"]


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    """A duration as the settings file writes it, such as 30m; more than none."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            duration = parse_duration(value)
        except SettingsError as error:
            self.fail(f"{value!r} is {error.message}: {error.hint}", param, ctx)
        if not duration:
            self.fail(f"{value!r} is no time at all", param, ctx)
        return duration


DURATION = _Duration()


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    """A size as the settings file writes it, such as 256MiB; at least 1MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            size = parse_size(value)
        except SettingsError as error:
            self.fail(f"{value!r} is {error.message}: {error.hint}", param, ctx)
        if size < MIB:
            self.fail(f"{value!r} is less than 1MiB", param, ctx)
        return size


SIZE = _Size()
