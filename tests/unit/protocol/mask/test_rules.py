"""Globs of fields: the stream's name and the path are one text, in which `*` stands for anything."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol.mask.masks import Masks
from bridge.protocol.mask.rules import KEEP, members_of


def action(masks: dict[str, str], stream: str, *path: str) -> str:
    """The action that a value at this path has, as one who comes from above sees it."""
    members = members_of(masks, [stream])
    ways = (members.of(".".join(path[:end])) if members else KEEP for end in range(1, len(path) + 1))
    return next((one for one in ways if one != KEEP), KEEP)


@pytest.mark.parametrize(
    ("glob", "stream", "path", "is_met"),
    [
        ("*.email", "users", ("email",), True),
        ("*.email", "users", ("contact", "email"), True),
        ("*.email", "users", ("my_email",), False),
        ("*email", "users", ("my_email",), True),
        ("users.email", "users", ("email",), True),
        ("users.email", "users", ("contact", "email"), False),
        ("users.email", "public.users", ("email",), False),
        ("public.users.email", "public.users", ("email",), True),
        ("public.users.email", "public", ("users", "email"), True),
        ("users.*.email", "users", ("contact", "email"), True),
        ("users.*.email", "users", ("email",), False),
        ("users.*", "users", ("anything",), True),
        ("USERS.eMail", "users", ("EMAIL",), True),
        ("users.STRASSE", "users", ("straße",), True),
        ("users.a*b", "users", ("a.b",), True),
        ("users.contact", "users", ("contact", "email"), True),
    ],
)
def test_a_glob(glob: str, stream: str, path: tuple[str, ...], is_met: bool) -> None:
    """A field below one that is masked is masked with it."""
    assert (action({glob: "hash"}, stream, *path) == "hash") is is_met


def test_the_last_one_counts() -> None:
    """A rule for all, and an exception below it."""
    masks = {"*.email": "hash", "staff.email": "keep", "staff.*": "keep", "staff.phone": "redact"}
    assert action(masks, "users", "email") == "hash"
    assert action(masks, "staff", "email") == "keep"
    assert action(masks, "staff", "phone") == "redact"


@settings(max_examples=500, deadline=None)
@given(st.text("ab.*", min_size=1, max_size=10), st.text("ab.", min_size=1, max_size=10))
def test_globs_against_regular_expressions(glob: str, text: str) -> None:
    """The places reached are those of the regular expression that says the same."""
    stream, _, name = text.rpartition(".")
    if not stream or not name:
        return
    pattern = re.compile("".join(".*" if one == "*" else re.escape(one) for one in glob))
    members = members_of({glob: "hash"}, [stream])
    assert (members is not None and members.of(name) == "hash") == (pattern.fullmatch(text) is not None)


def test_masks_of_no_stream() -> None:
    """A stream that no glob can reach is left alone, and so are masks that only keep."""
    assert members_of({"users.email": "hash"}, ["orders"]) is None
    assert members_of({"*.email": "keep"}, ["users"]) is None
    assert not Masks({"*.email": "keep"}, "")


def test_all_names_of_a_stream_count() -> None:
    """A catalog may call it otherwise than its RECORDs."""
    assert members_of({"public-users.email": "hash"}, ["users"]) is None
    members = members_of({"public-users.email": "hash"}, ["public-users", "users"])
    assert members
    assert members.of("email") == "hash"


def test_globs_that_no_field_met() -> None:
    """A misspelt name would be stored in clear: the run says so, of SCHEMAs and of records by either reader."""
    globs = ["users.emial", "*.phone", "usres.email", "*.deep", "*.odd", "*.plain"]
    masks = Masks(dict.fromkeys(globs, "redact") | {"*.kept": "keep"}, "k")
    assert masks.unmet == globs
    masks.masked_schema(["users"], {"properties": {"email": {}, "phone": {}}})
    prefix = b'{"type":"RECORD","stream":"users","record":'
    masks.lines(["users"], prefix + b'{"a":{"deep":1}}}\n' + prefix + b'{"\\u006fdd":1}}\n', prefix)
    masks.lines(["users"], prefix + b'{"plain":1}}\n', None)
    assert masks.unmet == ["users.emial", "usres.email"]
