"""The values of `mask` and `mask_key`: which fields are masked, how, and the key of `hash`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, WithJsonSchema

from bridge.settings.text.tree import Unknown
from bridge.settings.values.checked import wrong

Mask = Literal["hash", "redact", "last4", "year", "drop", "keep"]
_SHORTEST = 16
_LONGEST = 1000


def _masks(value: Any) -> Any:
    if not isinstance(value, dict):
        raise wrong("must be a mapping of fields to masks", hint='such as {"*.email": hash, customers.phone: redact}')
    return {glob: _mask(glob, mask) for glob, mask in value.items()}


def _mask(glob: Any, mask: Any) -> Any:
    stream, dot, name = str(glob).rpartition(".")
    if not (stream and dot and name) or len(str(glob)) > _LONGEST:
        raise wrong("a field is named with its stream", hint='as customers.email, or "*.email" of all streams', at=glob)
    if mask is None:
        raise wrong("no mask is given", hint="write keep to leave the field as it is", at=glob)
    if mask not in get_args(Mask) and not isinstance(mask, Unknown):
        raise wrong("no such mask", hint=f"there are: {', '.join(get_args(Mask))}", at=glob)
    return mask


def _key(value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or len(value) < _SHORTEST):
        hint = "make one with `openssl rand -hex 32`, and keep it where you keep passwords: mask_key: ${MASK_KEY}"
        raise wrong(f"must have at least {_SHORTEST} characters: with a short key, hashes can be guessed", hint=hint)
    return value


Masked = Annotated[
    dict[str, Mask],
    BeforeValidator(_masks),
    WithJsonSchema(
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": r"^.+\..+$"},
            "additionalProperties": {"enum": [*get_args(Mask)]},
        }
    ),
]
MaskKey = Annotated[
    str | None,
    BeforeValidator(_key),
    WithJsonSchema({"type": ["string", "null"], "minLength": 1}),
]
