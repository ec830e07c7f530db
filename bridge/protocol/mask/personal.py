"""Fields that look personal: by the words of their names, and by the form of their values.

A proposal to look at, not a decision: names that say nothing, and texts in which a name stands, are not noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bridge.protocol.mask.rules import DROP, HASH, YEAR

_REDACT, _LAST4 = "redact", "last4"
_WORDS: dict[str, str] = {
    "email": HASH,
    "e mail": HASH,
    "mail address": HASH,
    "phone": _REDACT,
    "telephone": _REDACT,
    "mobile": _REDACT,
    "cell": _REDACT,
    "fax": _REDACT,
    "first name": _REDACT,
    "last name": _REDACT,
    "full name": _REDACT,
    "given name": _REDACT,
    "family name": _REDACT,
    "surname": _REDACT,
    "maiden name": _REDACT,
    "middle name": _REDACT,
    "firstname": _REDACT,
    "lastname": _REDACT,
    "fullname": _REDACT,
    "username": HASH,
    "user name": HASH,
    "street": _REDACT,
    "address line": _REDACT,
    "address1": _REDACT,
    "address2": _REDACT,
    "latitude": _REDACT,
    "longitude": _REDACT,
    "ip": HASH,
    "ip address": HASH,
    "iban": _LAST4,
    "bank account": _LAST4,
    "account number": _LAST4,
    "card number": _LAST4,
    "credit card": _LAST4,
    "ssn": HASH,
    "social security": HASH,
    "tax id": HASH,
    "national id": HASH,
    "passport": HASH,
    "license number": HASH,
    "birth": YEAR,
    "birthday": YEAR,
    "birthdate": YEAR,
    "dob": YEAR,
    "gender": _REDACT,
    "religion": _REDACT,
    "password": DROP,
    "passwd": DROP,
}
"""By words of a name that follow each other."""
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"), HASH),
    (re.compile(r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?"), _LAST4),
    (re.compile(r"\+[0-9](?:[ ()/.-]*[0-9]){7,14}"), _REDACT),
    (re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"), HASH),
    (re.compile(r"[0-9]{3}-[0-9]{2}-[0-9]{4}"), HASH),
)
"""The form of the whole of a value."""
_CARD = re.compile(r"[0-9](?:[ -]?[0-9]){12,18}")
_MIN_SHARE = 0.5
"""So many of a field's texts must have the form."""
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")


def by_name(name: str) -> str | None:
    """The mask for a field of this name; None if the name does not look personal."""
    words = f" {' '.join(word for word in _BOUNDARY.split(name) if word).lower()} "
    return next((mask for phrase, mask in _WORDS.items() if f" {phrase} " in words), None)


def by_values(values: Iterable[Any]) -> str | None:
    """The mask for a field with these values; None if they do not look personal."""
    texts = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    needed = max(1.0, len(texts) * _MIN_SHARE)
    for form, mask in _FORMS:
        if sum(form.fullmatch(text) is not None for text in texts) >= needed:
            return mask
    return _LAST4 if sum(map(_is_card, texts)) >= needed else None


def _is_card(text: str) -> bool:
    """Whether a text is the number of a payment card, by its check digit (Luhn)."""
    if not _CARD.fullmatch(text):
        return False
    digits = [int(digit) for digit in reversed(text) if digit.isdigit()]
    return sum(sum(divmod(digit * (1 + at % 2), 10)) for at, digit in enumerate(digits)) % 10 == 0


def fields_of(schema: Any, place: str = "") -> Iterator[str]:
    """The dotted names of the fields that a JSON Schema declares."""
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    for name, one in properties.items() if isinstance(properties, Mapping) else ():
        yield place + name
        yield from fields_of(one, f"{place}{name}.")
    yield from fields_of(schema.get("items"), place)


def values_of(record: Mapping[str, Any], tell: Callable[[str, Any], object], place: str = "") -> None:
    """Tell each value of a record that is neither object nor array, by the dotted name of its field."""
    for name, value in record.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                values_of(one, tell, f"{place}{name}.")
            else:
                tell(place + name, one)
