"""Checks every record against its SCHEMA, with formats: `rejects.validate: full`.

The draft is the one that `$schema` names; without one Draft 7, or Draft 4 where only that can be meant. Numbers are
compared digit by digit, as the tap wrote them: 0.3 is a multiple of 0.1. Nothing outside the SCHEMA is ever fetched.
A line that is no RECORD is left to the decoder, which rejects it. jsonschema-rs passes the records that are valid, all
of them as a rule; jsonschema has the last word on the others, and says the reason.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

import simplejson

from bridge.errors import DataError
from bridge.protocol.decode.coerce import RecordRejected, lines_of, parsed
from bridge.protocol.decode.exact import Reject
from bridge.protocol.schema.quick_rules import formats_of, is_multiple, quick_check

_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_HINT = "set `rejects.validate: types`, or ask the tap's authors to correct the SCHEMA"


def rules_text(schema: Mapping[str, Any], stream: str) -> bytes:
    """The SCHEMA as `Rules` reads it. Raises `DataError` if no record can be checked against it."""
    try:
        text: str = simplejson.dumps(schema, use_decimal=True)
    except ValueError as error:  # NaN
        raise _unusable(stream, str(error)) from error
    Rules(text.encode(), stream)
    return text.encode()


class Rules:
    """One SCHEMA, compiled."""

    def __init__(self, text: bytes, stream: str) -> None:
        from jsonschema.exceptions import SchemaError

        schema = simplejson.loads(text, use_decimal=True)
        self._stream = stream
        try:
            self._validator = validator_of(schema, formats=True)
            self._validator.check_schema(schema)
        except SchemaError as error:
            raise _unusable(self._stream, error.message) from error
        self._accepts = quick_check(schema, draft_of(schema))

    def rejects(self, data: bytes) -> list[Reject]:
        """The RECORD lines that break a rule, each with the first one that it breaks; lines count from 0."""
        result = []
        for number, line in enumerate(lines_of(data)):
            if self._accepts and self._accepts(line):
                continue
            try:
                self._check(line)
            except RecordRejected as rejected:
                result.append(Reject(number, rejected.reason, rejected.pointer, line))
        return result

    def _check(self, line: bytes) -> None:
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            message = parsed(line)
        except RecordRejected:
            return  # the decoder rejects it
        record = message.get("record") if isinstance(message, dict) else None
        if not isinstance(record, dict):
            return
        try:
            broken = best_match(self._validator.iter_errors(record))
        except RecursionError:
            raise RecordRejected("nested too deep to be validated") from None
        except Unresolvable as error:
            raise _unusable(self._stream, f"{error.ref} cannot be found in it") from error
        except re.error as error:
            raise _unusable(self._stream, f"{error.pattern!r} is no pattern here") from error
        if broken is not None:
            raise RecordRejected(_reason(broken), tuple(broken.absolute_path))


def _unusable(stream: str, why: str) -> DataError:
    return DataError("records cannot be validated by this SCHEMA", hint=_HINT, stream=stream, why=why)


def _reason(error: Any) -> str:
    """Words of the SCHEMA, never of the record, so that rejects can be counted by them."""
    if error.validator == "format":
        return f"not valid: format {error.validator_value}"
    return f"not valid: {error.validator}" if error.validator else "not valid: nothing is allowed here"


def draft_of(schema: Any) -> Any:
    """jsonschema's class for the draft of a SCHEMA: the one it names, else 7, or 4 where only that can be meant.

    Fractions may be `Decimal`, and are exact then: 1.25 is a multiple of 1e-05.
    """
    from jsonschema import Draft4Validator, Draft7Validator
    from jsonschema.validators import validator_for

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for an unknown `$schema`
        kind = _exact(validator_for(schema, default=Draft7Validator))
    older = _exact(Draft4Validator)  # in which taps write "exclusiveMaximum": true
    if isinstance(schema, dict) and "$schema" not in schema and not kind(kind.META_SCHEMA).is_valid(schema):
        return older if older(older.META_SCHEMA).is_valid(schema) else kind
    return kind


def validator_of(schema: Any, *, formats: bool = False) -> Any:
    """jsonschema's validator for a SCHEMA. It never fetches a `$ref` to elsewhere."""
    from referencing import Registry

    kind = draft_of(schema)
    return kind(schema, format_checker=formats_of(kind) if formats else None, registry=Registry())


@cache
def _exact(kind: Any) -> Any:
    from jsonschema.validators import extend

    types = kind.TYPE_CHECKER.redefine("number", _is_number)
    if kind.TYPE_CHECKER.is_type(1.0, "integer"):  # from Draft 6 on
        types = types.redefine("integer", _is_integer)
    make: Any = extend  # untyped
    bounds = {name: _but_nan(kind.VALIDATORS[name]) for name in _BOUNDS & kind.VALIDATORS.keys()}
    return make(kind, bounds | {"multipleOf": _multiple_of}, type_checker=types, format_checker=kind.FORMAT_CHECKER)


def _but_nan(check: Any) -> Any:
    """NaN is neither below nor above a bound: Python compares it with a float, but raises for a `Decimal`."""

    def checked(validator: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not (isinstance(value, float) and math.isnan(value)):
            yield from check(validator, bound, value, schema)

    return checked


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_integer(_: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return is_multiple(value, 1)
    return isinstance(value, int) and not isinstance(value, bool)


def _multiple_of(validator: Any, divisor: Any, value: Any, _: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "number") and not is_multiple(value, divisor):
        yield ValidationError("not a multiple")
