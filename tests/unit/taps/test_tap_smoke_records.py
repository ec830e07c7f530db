"""Records are a pure function of (seed, stream, number), and look as the dialect says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from tap_smoke.messages import Dialect
from tap_smoke.records import Recipe, column_schemas
from tap_smoke.settings import STYLES, StreamSettings

Tap = Callable[..., Any]
PLAIN = {"streams": [{"name": "s", "records": 40}]}


def _stream(**settings: Any) -> dict[str, Any]:
    return {"streams": [{"name": "s", "records": 20, **settings}]}


def test_the_same_seed_gives_the_same_bytes(smoke: Tap) -> None:
    """Two runs of one config are equal to the byte; another seed changes only values."""
    first, again, other = smoke(PLAIN), smoke(PLAIN), smoke({**PLAIN, "seed": 1})
    assert first.code == 0
    assert first.stdout == again.stdout != other.stdout
    assert first.ids() == other.ids() == list(range(1, 41))


def test_streams_differ_under_one_seed(smoke: Tap) -> None:
    """The stream's name is part of the function."""
    run = smoke({"streams": [{"name": "a", "records": 1}, {"name": "b", "records": 1}]})
    assert run.of("RECORD", "a")[0]["record"] != run.of("RECORD", "b")[0]["record"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("wide", [0, 13])
def test_the_fast_line_is_the_exact_line(style: str, wide: int) -> None:
    """The template gives the bytes that encoding the record as a dict gives."""
    stream, dialect = StreamSettings("100% s", records=2000, wide=wide), Dialect(style)
    recipe = Recipe(3, stream, set(column_schemas(stream)), dialect, 5)
    before, after = dialect.envelope(stream.name, 5)
    exact = "".join(before + dialect.text(recipe.row(n)) + after for n in range(1, 2001))
    assert recipe.lines(1, 2001) == exact


def test_styles_differ_in_bytes_and_agree_in_meaning(smoke: Tap) -> None:
    """Each style is the same records written otherwise."""
    runs = {style: smoke({**PLAIN, "style": style}) for style in STYLES}
    rows = [[m["record"] for m in run.of("RECORD")] for run in runs.values()]
    assert all(each == rows[0] for each in rows)
    assert len({run.stdout for run in runs.values()}) == len(STYLES)


def test_each_style_has_its_marks(smoke: Tap) -> None:
    """Spacing, escaping and key order are those of the writers the styles are named for."""
    lines = {style: smoke({**PLAIN, "style": style}).stdout for style in STYLES}
    assert b'{"type":"RECORD","stream":"s","record":{"id":1,' in lines["compact"]
    assert b'{"type": "RECORD", "stream": "s", "record": {"id": 1, ' in lines["spaced"]
    assert lines["compact"].isascii() and lines["spaced"].isascii()
    assert "Zoë".encode() in lines["raw"]
    assert b'"stream":"s","type":"RECORD"}\n' in lines["shuffled"]


def test_time_extracted_follows_version_and_can_be_left_out(smoke: Tap) -> None:
    """A RECORD's keys stand in the order in which singer libraries write them."""
    record = smoke(_stream(version=1)).of("RECORD")[0]
    assert list(record) == ["type", "stream", "record", "version", "time_extracted"]
    assert "time_extracted" not in smoke({**PLAIN, "time_extracted": False}).of("RECORD")[0]


def test_wide_adds_so_many_bytes(smoke: Tap) -> None:
    """`payload` has the length that was asked for, and the SCHEMA announces it."""
    run = smoke(_stream(wide=1001))
    assert {len(m["record"]["payload"]) for m in run.of("RECORD")} == {1001}
    assert "payload" in run.of("SCHEMA")[0]["schema"]["properties"]


def test_types_has_every_type_and_keeps_its_schema(smoke: Tap) -> None:
    """With `types` every record is valid under its SCHEMA, and nulls, gaps and both null orders occur."""
    run = smoke(_stream(types=True))
    schema = run.of("SCHEMA")[0]["schema"]
    rows = [m["record"] for m in run.of("RECORD")]
    for row in rows:
        jsonschema.validate(row, schema)
    kinds = schema["properties"]
    assert kinds["null_first"]["type"] == ["null", "integer"]
    assert kinds["null_last"]["type"] == ["integer", "null"]
    assert "properties" not in kinds["anything"]
    assert {"sometimes" in row for row in rows} == {True, False}
    assert {row["null_first"] is None for row in rows} == {True, False}
    endings = {row[column][19:20] for row in rows for column in ("at_z", "at_offset", "at_fraction")}
    assert endings == {"Z", "+", "-", "."}


def test_a_new_column_comes_with_a_new_schema(smoke: Tap) -> None:
    """The second SCHEMA stands right before the first record that has the column."""
    run = smoke(_stream(schema_change={"at": 8, "add": "extra"}))
    kinds = [m["type"] for m in run.messages]
    assert kinds[:10] == ["SCHEMA", *["RECORD"] * 7, "SCHEMA", "RECORD"]
    assert run.of("SCHEMA")[1]["schema"]["properties"]["extra"] == {"type": ["integer", "null"]}
    assert ["extra" in m["record"] for m in run.of("RECORD")] == [False] * 7 + [True] * 13


@pytest.mark.parametrize(("to", "kind"), [("string", str), ("number", float)])
def test_a_retyped_column_comes_with_a_new_schema(smoke: Tap, to: str, kind: type) -> None:
    """Later values have the new type, earlier ones the old."""
    run = smoke(_stream(schema_change={"at": 8, "retype": "n", "to": to}))
    values = [m["record"]["n"] for m in run.of("RECORD")]
    assert [type(value) for value in values] == [int] * 7 + [kind] * 13
    assert run.of("SCHEMA")[1]["schema"]["properties"]["n"] == {"type": ["null", to]}


def test_a_run_that_begins_after_the_change_says_only_the_new_schema(smoke: Tap) -> None:
    """A resumed run announces the schema of its own records, once."""
    config = _stream(schema_change={"at": 8, "add": "extra"})
    for value in (7, 12, 20):
        bookmark = {"replication_key": "id", "replication_key_value": value}
        schemas = smoke(config, state={"bookmarks": {"s": bookmark}}).of("SCHEMA")
        assert ["extra" in m["schema"]["properties"] for m in schemas] == [True]


def test_a_field_and_a_value_outside_the_schema(smoke: Tap) -> None:
    """Exactly the named records break the schema."""
    rows = [m["record"] for m in smoke(_stream(extra_field=4, bad_value=6)).of("RECORD")]
    assert [row["id"] for row in rows if "surprise" in row] == [4]
    assert [row["id"] for row in rows if isinstance(row["n"], str)] == [6]


def test_key_properties_may_be_others_empty_or_absent(smoke: Tap) -> None:
    """null leaves the property out, as SDK taps do."""
    for keys in (["id", "n"], []):
        assert smoke(_stream(key_properties=keys)).of("SCHEMA")[0]["key_properties"] == keys
    assert "key_properties" not in smoke(_stream(key_properties=None)).of("SCHEMA")[0]


def test_every_line_is_one_json_object(smoke: Tap) -> None:
    """The awkward texts in `name` never break a line in two."""
    run = smoke({"streams": [{"name": "s\u2028\n%s", "records": 300}], "style": "raw"})
    assert [type(json.loads(line)) for line in run.stdout.split(b"\n")[:-1]] == [dict] * 302
