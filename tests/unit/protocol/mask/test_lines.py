"""RECORD lines with values masked: both readers agree, and nothing of a masked value is left in any line."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.exact_json import NotJson, loads
from bridge.protocol.decode import native
from bridge.protocol.mask.lines import LineMasks
from bridge.protocol.mask.rules import members_of

EMPTY = dict.fromkeys(("email", "phone", "iban", "birth"))
KEY = "a key that only this test has"
PREFIX = b'{"type":"RECORD","stream":"people","record":'
MASKS = {
    "*.email": "hash",
    "people.phone": "redact",
    "*.iban": "last4",
    "*.note": "drop",
    "*.birth": "year",
    "people.contact.email": "keep",
}
NAMES = ["email", "EMAIL", "phone", "iban", "note", "birth", "id", "contact", "tags", "größe", "a.b", 'q"', "phones"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.sampled_from(
        ["1984-05-02", "1984", "0012-05-01", "+49 30 1234", "DE89370400440532013000", "ä€😀", '"', "\\", "\n"]
    ),
    st.text(max_size=12),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: value == 0 or 1e-4 < abs(value) < 1e15),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
RECORDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)


def masks(of: dict[str, str] | None = None, *names: str) -> LineMasks:
    names = names or ("people",)
    members = members_of(of or MASKS, names)
    assert members
    return LineMasks(KEY, members)


def line(record: Any, **envelope: Any) -> bytes:
    rest = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in envelope.items())
    return PREFIX + json.dumps(record, ensure_ascii=False).encode(errors="surrogatepass") + rest.encode() + b"}\n"


def record_of(text: bytes) -> Any:
    message = loads(text)
    assert (message["type"], message["stream"]) == ("RECORD", "people")
    return message["record"]


def masked(record: Any, of: dict[str, str] | None = None) -> Any:
    """The record as it is stored; both readers must agree."""
    one, data = masks(of), line(record)
    result = record_of(one.masked(data, PREFIX))
    assert result == record_of(one._line(data.rstrip(b"\n"), PREFIX)) == record_of(one.masked(data, None))
    return result


def code(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        ({"email": "a@b.c"}, {"email": code("a@b.c")}),
        ({"Email": "a@b.c"}, {"Email": code("a@b.c")}),
        (EMPTY, EMPTY),
        ({"email": ""}, {"email": code("")}),
        ({"email": 42}, {"email": code("42")}),
        ({"email": True}, {"email": code("true")}),
        ({"email": ["a", None, [1.50]]}, {"email": [code("a"), None, [code("1.5")]]}),
        ({"email": {"b": 1, "a": "x"}}, {"email": code('{"a": "x", "b": 1}')}),
        ({"email": "größe ä€😀"}, {"email": code("größe ä€😀")}),
        ({"phone": {"home": 1}}, {"phone": "***"}),
        ({"phone": 491771234567}, {"phone": "***"}),
        ({"phones": 1}, {"phones": 1}),
        ({"iban": "DE89370400440532013000"}, {"iban": "***3000"}),
        ({"iban": 12345678}, {"iban": "***5678"}),
        ({"iban": "1234567"}, {"iban": "***"}),
        ({"iban": 'long "text"\\'}, {"iban": '***xt"\\'}),
        ({"birth": "1984-05-02T10:00:00Z"}, {"birth": 1984}),
        ({"birth": "2. Mai 1984"}, {"birth": 1984}),
        ({"birth": 1984}, {"birth": 1984}),
        ({"birth": "1984 or 1985"}, {"birth": None}),
        ({"birth": "no"}, {"birth": None}),
        ({"birth": ["1984-05-02", None]}, {"birth": [1984, None]}),
        ({"note": 1}, {}),
        ({"note": 1, "id": 2}, {"id": 2}),
        ({"id": 2, "note": {"a": [1]}}, {"id": 2}),
        ({"id": 2, "note": 1, "tags": [{"note": 3}, {"note": 3, "b": 1}]}, {"id": 2, "tags": [{}, {"b": 1}]}),
        (
            {"contact": {"email": "as is", "work": {"email": "x"}}},
            {"contact": {"email": "as is", "work": {"email": code("x")}}},
        ),
        ({"id": 10**22 + 1, "größe": {"email": "x"}}, {"id": 10**22 + 1, "größe": {"email": code("x")}}),
    ],
)
def test_a_record(record: Any, stored: Any) -> None:
    """Each mask, on each kind of value; what is not masked stays as it is."""
    assert masked(record) == stored


def test_equal_numbers_have_one_hash() -> None:
    """However a tap writes them, and as text, too: another stream may have the key in another type."""
    lines = b"".join(PREFIX + b'{"email":%s}}\n' % text for text in (b"42", b"42.0", b"4.2e1", b'"42"', b"42.000"))
    stored = {record_of(text)["email"] for text in masks().masked(lines, PREFIX).splitlines()}
    assert stored == {code("42")}
    zero = b"".join(PREFIX + b'{"email":%s}}\n' % text for text in (b"0", b"-0", b"0.00", b"-0.0", b"0e5"))
    assert {record_of(text)["email"] for text in masks().masked(zero, PREFIX).splitlines()} == {code("0")}


@settings(max_examples=400, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_both_readers_give_the_same(records: list[Any]) -> None:
    """The compiled reader gives what the exact path gives, and what it leaves comes in its place."""
    one = masks()
    data = b"".join(line(record) for record in records)
    exact = [record_of(one._line(text, PREFIX)) for text in data.split(b"\n")[:-1]]
    assert [record_of(text) for text in one.masked(data, PREFIX).split(b"\n")[:-1]] == exact
    assert [record_of(text) for text in one.masked(data, None).split(b"\n")[:-1]] == exact


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.binary(max_size=3), st.integers(0, 400))
def test_nothing_is_left_of_a_damaged_line(record: Any, dirt: bytes, at: int) -> None:
    """Whatever is done to a line, a secret in a masked field is in no byte that is kept."""
    record = {**record, "email": "SECRET", "tags": [{"iban": "SECRETSECRETNONE", "note": "SECRET"}]}
    record |= {"phone": {"a": ["SECRET"]}, "birth": "SECRET"}
    record.pop("contact", None)
    data = line(record, version=1)[:-1]
    at = len(PREFIX) + at % (len(data) - len(PREFIX))
    dirt = dirt.replace(b"\n", b" ")
    for damaged in (data[:at] + dirt + data[at:], data[:at], data[:at] + dirt + data[at + len(dirt) :]):
        kept = masks().masked(damaged + b"\n", PREFIX)
        assert kept.count(b"\n") == 1
        try:
            told = loads(damaged)
        except NotJson:
            told = None
        record_there = told.get("record") if isinstance(told, dict) else None
        assert b"SECRET" not in kept or shows_elsewhere(record_there), damaged


def shows_elsewhere(value: Any) -> bool:
    """Whether a secret stands in a field that nobody asked to mask, as its name was damaged."""
    if isinstance(value, dict):
        names = ("email", "iban", "note", "birth", "phone")
        return any(
            "SECRET" in name or (name.lower() not in names and shows_elsewhere(one)) for name, one in value.items()
        )
    return any(map(shows_elsewhere, value)) if isinstance(value, list) else "SECRET" in str(value)


def test_lines_that_cannot_be_read_keep_their_place() -> None:
    """They become lines that say so, and so rejects: none is lost, and none is one too many."""
    odd = [b"{", b'{"email":"SECRET"', b'"SECRET"', b'{"email":"SECRET"}} SECRET', b'{"email":"\xff"}}', b"null}"]
    lines = [line({"id": 1}), *(PREFIX + text + b"\n" for text in odd), line({"id": 2}), b"\n", line({"id": 3})]
    kept = masks().masked(b"".join(lines), PREFIX).split(b"\n")
    assert len(kept) == len(lines) + 1
    assert b"SECRET" not in b"".join(kept)
    assert [record_of(kept[place])["id"] for place in (0, 7, 9)] == [1, 2, 3]
    assert all(b"cannot be read" in text and text.startswith(PREFIX) for text in kept[1:7])


def test_a_line_of_another_stream_is_not_kept() -> None:
    """A line that names two streams could be masked as neither."""
    data = PREFIX + b'{"email":"SECRET","id":7},"stream":"other"}\n'
    assert b"SECRET" not in masks().masked(data, PREFIX)
    assert b"cannot be read" in masks().masked(data, PREFIX)


def test_what_no_message_has_is_left_out() -> None:
    """A member of the message that nobody knows may hold anything; the known ones stay as they are."""
    data = line({"id": 1}, version=7, old={"email": "SECRET"}, time_extracted="2026-01-02T03:04:05Z")
    for prefix in (PREFIX, None):
        message = loads(masks().masked(data, prefix))
        assert message == {
            "type": "RECORD",
            "stream": "people",
            "record": {"id": 1},
            "version": 7,
            "time_extracted": "2026-01-02T03:04:05Z",
        }


def test_escaped_names_and_repeated_names() -> None:
    """However a name is written, and whichever of two values a reader takes."""
    data = PREFIX + b'{"\\u0065mail":"SECRET","iban":"SECRETSECRET","iban":"SECRETSECRE2","email":"SECRET"}}\n'
    assert b"SECRET" not in masks().masked(data, PREFIX)


def test_the_rest_of_a_line_is_untouched() -> None:
    """Digits, spaces and escapes of what is not masked are the tap's own."""
    data = PREFIX + b'{ "a" : 1.10 ,"email" : "x" , "b":"\\u00e4\\/" , "note": 1 }, "version": 3}\n'
    hashed = b'{ "a" : 1.10 ,"email" : "%s" , "b":"\\u00e4\\/" }, "version": 3}\n' % code("x").encode()
    if native.AVAILABLE:
        assert masks().masked(data, PREFIX) == PREFIX + hashed


def test_a_stream_with_many_names() -> None:
    """Objects whose names are data, thousands of them."""
    one = masks()
    data = b"".join(line({f"k{number}": {"email": "SECRET", "n": number}}) for number in range(20_000))
    kept = one.masked(data, PREFIX)
    assert b"SECRET" not in kept
    assert kept.count(code("SECRET").encode()) == 20_000


def test_years_that_nobody_can_tell_are_counted() -> None:
    """The run says how many became null, and where."""
    one = masks()
    one.masked(line({"birth": "x", "a": {"birth": [True, {}, "1984-01-01"]}}) + line({"birth": "?"}), PREFIX)
    assert one.values.yearless == {"birth": 2, "a.birth": 2}


def test_without_the_compiled_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines, slower."""
    data = b"".join(line({"id": number, "email": f"SECRET{number}", "note": 1}) for number in range(50))
    compiled = masks().masked(data, PREFIX)
    monkeypatch.setattr(native, "_library", None)
    exact = masks().masked(data, PREFIX)
    assert [record_of(text) for text in exact.splitlines()] == [record_of(text) for text in compiled.splitlines()]
    assert b"SECRET" not in exact
