"""Fields that look personal, by their names and by their values."""

from __future__ import annotations

import pytest

from bridge.protocol.mask.masks import Masks
from bridge.protocol.mask.personal import by_name, by_values


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        *(("email", "hash"), ("contact_email", "hash"), ("EmailAddress", "hash"), ("e-mail", "hash")),
        *(("homePhone", "redact"), ("MOBILE_NO", "redact"), ("first_name", "redact"), ("lastName", "redact")),
        *(("date_of_birth", "year"), ("DOB", "year"), ("iban", "last4"), ("creditCardNumber", "last4")),
        *(("client_ip", "hash"), ("password", "drop"), ("SSN", "hash")),
        *(("id", None), ("shipment", None), ("name", None), ("description", None), ("zip", None), ("tip", None)),
        *(("total", None), ("created_at", None), ("cellar", None)),
    ],
)
def test_a_name(name: str, mask: str | None) -> None:
    """Words of a name, however they are joined; a word inside of another is none."""
    assert by_name(name) == mask


@pytest.mark.parametrize(
    ("values", "mask"),
    [
        (["a@b.com", "x.y@z.org", ""], "hash"),
        (["DE89 3704 0044 0532 0130 00"], "last4"),
        (["+49 30 123456", "+1 (555) 123-4567"], "redact"),
        (["192.168.0.1"], "hash"),
        (["4111 1111 1111 1111"], "last4"),
        (["4111 1111 1111 1112"], None),
        (["a@b.com", "x", "y"], None),
        (["2026-01-02", "1.2.3"], None),
        ([None, 42, ""], None),
        ([], None),
    ],
)
def test_values(values: list[object], mask: str | None) -> None:
    """Half of the texts have the form, from their first character to their last."""
    assert by_values(values) == mask


def test_a_proposal() -> None:
    """Nested fields and those of records only; not what the settings have decided on, nor what lies below it."""
    declared = {"properties": {"id": {}, "email": {}, "phone": {}, "contact": {"properties": {"email": {}}}}}
    records = [{"id": 1, "work": [{"mail": "a@b.com"}], "more": {"x": "a@b.com"}, "email": "x"}]
    masks = Masks({"*.phone": "keep", "users.more": "drop"}, "")
    assert masks.proposed(["users"], declared, ["email"], records) == {
        "users.email": "hash",
        "users.contact.email": "hash",
        "users.work.mail": "hash",
    }
