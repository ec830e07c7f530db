"""bridge.schema.json: equal to the code, valid itself, and of one mind with the reader of settings."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.errors import SettingsError
from bridge.settings.json_schema import SCHEMA_FILE, json_schema
from bridge.settings.load import load
from bridge.settings.options import Keys
from bridge.settings.values.section import Section, section_of
from tests.unit.settings.test_load import ANYTHING, BLOCK, block_text

SCHEMA = json.loads(SCHEMA_FILE.read_text())
DOCS = [Path(__file__).parents[3] / "README.md", *sorted((Path(__file__).parents[3] / "docs").glob("*.md"))]


class Yaml12(yaml.SafeLoader):
    """YAML as editors read it, version 1.2: only `true` and `false` are booleans, so the key `on` is text."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if first in "tTfF" or not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def mistakes(text: str) -> list[str]:
    """What the schema finds wrong with a file, as an editor would."""
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(yaml.load(text, Yaml12))]


def test_the_shipped_schema_is_that_of_the_code() -> None:
    """A setting that is added or changed is in the schema: `python -m bridge.settings.json_schema` writes it."""
    assert json_schema() == SCHEMA
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_the_examples_of_the_documentation_are_valid(path: Path) -> None:
    """Each bridge.yaml that a document shows is one that an editor accepts."""
    for text in re.findall(r"^```yaml[^\n]*\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL):
        if "pipelines:" in text:
            assert mistakes(text) == []


@pytest.mark.parametrize(("section", "key"), [(section, key) for section, keys in BLOCK.items() for key in keys])
def test_the_schema_knows_what_the_reader_knows(section: str, key: str) -> None:
    """A key that is accepted is in the schema."""
    assert mistakes(block_text(section, key, BLOCK[section][key])) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "good"),
    [
        ("", "commit", '{every: "${EVERY}", bytes: "${N}MiB"}', True),
        ("", "commit", "{every: 5}", False),
        ("", "commit", "{bytes: 64MB}", False),
        ("", "commit", "{bytes: 67108864}", True),
        ("", "rejects", "{max: ${MAX:-5}}", True),
        ("", "rejects", "{max: many}", False),
        ("", "rejects", "{max: -1}", False),
        ("", "incremental", '{enabled: "${FULL}"}', True),
        ("", "streams", '{"a*": {load_method: append}}', False),
        ("", "streams", '{"a*": {key_properties: [a, b]}}', True),
        ("", "zzz", "{}", False),
        ("source", "env", "{A: 5, B: true, C: text}", True),
        ("source", "env", "{A: [5]}", False),
        ("source", "idle_timeout", "null", True),
        ("source", "config", "tap.json", True),
        ("source", "config", "5", False),
        ("source", "zzz", "x", False),
        ("destination", "compression", "rar", False),
        ("destination", "compression", '"${C}"', True),
        ("top", "environments", "{prod: {pipelines: {a: {commit: {every: 5m}}}}}", True),
        ("top", "environments", "{prod: {commit: {every: 5m}}}", False),
        ("top", "defaults", "{commit: {every: 5m}}", True),
        ("top", "defaults", "{commit: 5m}", False),
        ("top", "include", "a.yaml", False),
        ("top", "zzz", "{}", False),
    ],
)
def test_the_schema_tells_good_from_wrong(section: str, key: str, value: str, good: bool) -> None:
    """An editor marks what the reader refuses, and a variable may stand wherever a value does."""
    text = block_text(section, key, value.replace("{max: ${MAX:-5}}", '{max: "${MAX:-5}"}'))
    assert (mistakes(text) == []) is good


def keys(section: type[Section] = Keys) -> list[tuple[str, str]]:
    """Every key of every section."""
    found = []
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        found += [(section.__name__, name), *(keys(inner) if inner else [])]
    return found


@pytest.mark.parametrize(("section", "key"), keys())
def test_every_key_is_described(section: str, key: str) -> None:
    """An editor has something to say about each key."""
    described: dict[str, Any] = SCHEMA["$defs"][section]["properties"][key]
    assert described["description"].strip()


@given(section=st.sampled_from(["source", "destination", "", "top"]), data=st.data(), value=ANYTHING)
@settings(max_examples=100, deadline=None)
def test_an_editor_never_marks_what_the_reader_accepts(section: str, data: st.DataObject, value: Any) -> None:
    """Whatever stands at a key: if the file loads, the schema has nothing against it."""
    key = data.draw(st.sampled_from(sorted(set(BLOCK[section]) - {"config"})))
    text = block_text(section, key, json.dumps(value))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bridge.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            assert all(load(path, {}).pipelines.values())
        except SettingsError:
            return
    assert mistakes(text) == []
