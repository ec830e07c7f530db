"""Changes of a stream's rows: the values of `columns`, `rename`, `transform` and `lookback`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from bridge.errors import SettingsError
from bridge.settings.values.checked import parsed, wrong
from bridge.settings.values.units import DURATION, parse_duration


def _columns(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one.strip("!") for one in value):
        raise wrong("must be a list of globs of column names", hint='such as ["*", "!secret_*"]; "!" leaves out')
    return value


def _rename(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(one, str) and one for pair in value.items() for one in pair):
        raise wrong("must be a mapping of old names to new ones", hint="such as {custNo: customer_id}")
    names = [name.casefold() for name in value.values()]
    if twice := next((name for name in value.values() if names.count(name.casefold()) > 1), None):
        raise wrong("two columns cannot get one name", hint=f"give {twice} to one of them")
    return value


def _lookback(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 < value < float("inf"):
            raise wrong("must be more than nothing", hint="remove the key for no lookback")
        return value
    try:
        duration = parse_duration(value)
    except SettingsError:
        hint = "write a duration such as 12h or 3d for times, a number such as 1000 for numbers"
        raise wrong("not a lookback", hint=hint) from None
    if not duration:
        raise wrong("must be more than nothing", hint="remove the key for no lookback")
    return duration


def _transform(value: Any) -> Any:
    if not isinstance(value, str):
        raise wrong("must be text", hint="such as: SELECT id, lower(email) AS email FROM stream")
    from bridge.settings.sql.transform import read_transform  # its library is slow to import, and few settings need it

    read_transform(value)
    return value


Columns = Annotated[
    list[str],
    BeforeValidator(_columns),
    WithJsonSchema({"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}),
]
Rename = Annotated[
    dict[str, str],
    BeforeValidator(_rename),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}),
]
Transform = Annotated[str, parsed(_transform), WithJsonSchema({"type": "string", "minLength": 1})]
Lookback = Annotated[
    timedelta | int | float,
    BeforeValidator(_lookback),
    WithJsonSchema({"type": ["string", "number"], "pattern": DURATION, "exclusiveMinimum": 0}),
]
