"""The value of `views`: the text of a view, and the names that views may have."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from bridge.errors import SettingsError
from bridge.settings.values.checked import parsed, wrong
from bridge.settings.values.units import DURATION, parse_duration

_SELECT = {"type": "string", "minLength": 1}
_TERM = {"type": "string", "pattern": DURATION}
_WITH_TERMS = {
    "type": "object",
    "properties": {"sql": _SELECT, "keep": _TERM, "lateness": _TERM},
    "required": ["sql"],
    "additionalProperties": False,
}
_NAME = "^[A-Za-z][A-Za-z0-9_-]{0,99}$"


def _text(value: Any) -> Any:
    from bridge.settings.sql.view import VIEW, read_view  # its library is slow to import, and few settings need it

    if isinstance(value, dict):
        value = _with_terms(value)
    if not isinstance(value, str):
        raise wrong("must be text", hint=VIEW.example)
    read_view("", value)
    return value


def _with_terms(view: dict[str, Any]) -> str:
    """The text of a view that is given as a mapping."""
    from bridge.settings.sql.window import with_terms

    for key, value in view.items():
        if key not in ("sql", "keep", "lateness"):
            raise wrong("unknown key", hint="a view has: sql, keep, lateness", at=str(key))
        if key != "sql" and value is not None:
            try:
                parse_duration(value)
            except SettingsError as error:
                raise wrong(error.message, hint=error.hint, at=key) from None
    if not isinstance(view.get("sql"), str):
        raise wrong("a view needs its SELECT", hint="as sql: SELECT ...")
    return with_terms(view["sql"], view.get("keep"), view.get("lateness"))


def _views(views: dict[str, str]) -> dict[str, str]:
    from bridge.settings.sql.view import read_view, read_views

    names = [name.casefold() for name in views]
    for name, text in views.items():
        if not re.fullmatch(_NAME, name):
            hint = "letters, digits, dash and underscore, at most 100, the first a letter"
            raise wrong("not a name for a view", hint=hint, at="" if "." in name else name)
        if names.count(name.casefold()) > 1:
            raise wrong("two views have one name", hint="the case of letters does not tell names apart", at=name)
        stream = read_view(name, text).stream.casefold()
        if stream == name.casefold():
            raise wrong("a view cannot have the name of its stream", hint="give it another name", at=name)
        if stream in names and read_view(name, text).stream not in views:
            hint = "write its name as it is: the case of letters counts"
            raise wrong("a view has the name of another one in other letters", hint=hint, at=name)
    try:
        ordered = read_views(views)
        tables = {view.closes.casefold(): view.name for view in ordered if view.closes}
        for view in ordered:
            if view.name.casefold() in tables:
                hint = f"rename it, or {tables[view.name.casefold()]}"
                raise wrong("a view has the name of a table of closed windows", hint=hint, at=view.name)
            if view.stream.casefold() in tables:
                hint = f"select from {tables[view.stream.casefold()]}, or ask by SQL"
                raise wrong("a view does not select from closed windows", hint=hint, at=view.name)
    except SettingsError as error:
        raise wrong(error.message, hint=error.hint) from None
    return views


Views = Annotated[
    dict[str, Annotated[str, parsed(_text)]],
    AfterValidator(_views),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": _NAME},
            "additionalProperties": {"anyOf": [_SELECT, _WITH_TERMS]},
        }
    ),
]
