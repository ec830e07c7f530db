"""The value of `views`: the text of a view, and the names that views may have."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from bridge.errors import SettingsError
from bridge.settings.values.checked import parsed, wrong

_NAME = "^[A-Za-z][A-Za-z0-9_-]{0,99}$"


def _text(value: Any) -> Any:
    from bridge.settings.sql.view import (
        VIEW,
        read_view,
        refuse_sessions,
    )  # its library is slow to import, and few settings need it

    if not isinstance(value, str):
        raise wrong("must be text", hint=VIEW.example)
    read_view("", value)
    refuse_sessions(value)
    return value


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
        read_views(views)
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
            "additionalProperties": {"type": "string", "minLength": 1},
        }
    ),
]
