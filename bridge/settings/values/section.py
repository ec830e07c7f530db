"""The base of all sections of the settings file: frozen and strict."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
)

from bridge.settings.text.tree import Unknown
from bridge.settings.values.checked import file_path, named, parsed
from bridge.settings.values.units import DURATION, SIZE, parse_duration, parse_size

Bytes = Annotated[int, parsed(parse_size), WithJsonSchema({"type": ["string", "integer"], "pattern": SIZE})]
Duration = Annotated[timedelta, parsed(parse_duration), WithJsonSchema({"type": "string", "pattern": DURATION})]
Name = Annotated[str | None, BeforeValidator(named), WithJsonSchema({"type": ["string", "null"], "minLength": 1})]
FilePath = Annotated[Path | None, BeforeValidator(file_path), WithJsonSchema({"type": ["string", "null"]})]


class Section(BaseModel):
    """A mapping of the settings file: frozen, strict, unknown keys refused, values never echoed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _any_text(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """What a command would print is not checked where any text may stand: nobody knows it yet."""
        if isinstance(value, Unknown) and str in _kinds(cls.model_fields[str(info.field_name)].annotation):
            return value
        return check(value)


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The types of a key's value."""
    return (annotation, *get_args(annotation))


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a key of this type holds, also by glob or optionally; None for a plain value."""
    return next((kind for kind in _kinds(annotation) if isinstance(kind, type) and issubclass(kind, Section)), None)
