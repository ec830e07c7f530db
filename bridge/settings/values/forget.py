"""The value of `forget`: by which columns of other streams a key of a stream is found there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from bridge.settings.values.checked import wrong

_COLUMN = {"type": "string", "minLength": 1}
_EXAMPLE = "such as {customers: {orders: customer_id}}: orders has a customer's key in its column customer_id"


def _relations(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(streams, dict) for streams in value.values()):
        raise wrong("must be a mapping of streams to mappings", hint=_EXAMPLE)
    return {
        str(stream): {str(other): _columns(columns, f"{stream}.{other}") for other, columns in streams.items()}
        for stream, streams in value.items()
    }


def _columns(value: Any, at: str) -> list[str]:
    columns = [value] if isinstance(value, str) else value
    if not isinstance(columns, list) or not columns or not all(isinstance(one, str) and one for one in columns):
        raise wrong("must be a column, or a list of those of the key", hint=_EXAMPLE, at=at)
    return columns


Relations = Annotated[
    dict[str, dict[str, list[str]]],
    BeforeValidator(_relations),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [_COLUMN, {"type": "array", "items": _COLUMN, "minItems": 1}],
                },
            },
        }
    ),
]
