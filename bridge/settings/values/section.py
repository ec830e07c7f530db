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
    def _of_command(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Leave the output of a command unchecked in the keys where secrets stand, and in `bucket`."""
        name = str(info.field_name)
        stands = not cls.model_fields[name].repr or name == "bucket"
        return value if stands and isinstance(value, Unknown) else check(value)


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a key of this type holds, also by glob or optionally; None for a plain value."""
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type(Section)) and issubclass(kind, Section)), None)
