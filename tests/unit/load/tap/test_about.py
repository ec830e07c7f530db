"""What taps say about themselves, and what becomes of those that do not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bridge.load.tap.about import About, Setting, about
from tests.support.wheels import TAP


@pytest.fixture
def said(tmp_path: Path) -> About:
    (tmp_path / "tap.py").write_text(f"{TAP}\nmain()\n")
    found = about([sys.executable, str(tmp_path / "tap.py")], os.environ)
    assert found
    return found


def setting(said: About, name: str) -> Setting:
    return next(one for one in said.settings if one.name == name)


def test_a_tap_of_the_sdk(said: About) -> None:
    """Name, version and settings come as the tap says them; types lose their null, descriptions their line breaks."""
    assert (said.name, said.version, said.capabilities) == ("tap-x", "1.0", ("discover",))
    assert [one.name for one in said.required] == ["host", "port", "password", "mode", "limits"]
    assert setting(said, "port").kind == "integer"
    assert setting(said, "port").default == 5432
    assert setting(said, "mode").choices == ("fast", "slow")
    assert setting(said, "host").description == "Where the database is: the host's name # not its address"


def test_secrets_are_known_by_their_mark_and_by_their_name(tmp_path: Path) -> None:
    """A setting that is marked is a secret, whatever its name; so is a text whose name says it, but no number."""
    answer = """{"settings": {"properties": {
        "marked": {"type": "object", "writeOnly": true}, "api_token": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "auth_timeout": {"type": "integer"}, "password": {}, "user": {"type": "string"}}}}"""
    (tmp_path / "tap.py").write_text(f"print('''{answer}''')")
    found = about([sys.executable, str(tmp_path / "tap.py")], os.environ)
    assert found
    assert [one.name for one in found.settings if one.secret] == ["marked", "api_token", "password"]
    assert setting(found, "api_token").kind == "string"


@pytest.mark.parametrize(
    "program",
    ["raise SystemExit(2)", "print('tap-x, version 1')", "print('[1]')", "print('{\"settings\": [1]}')", "print('')"],
)
def test_a_tap_that_does_not_know_the_question(tmp_path: Path, program: str) -> None:
    """Any other answer means that the tap cannot say; that is no error."""
    (tmp_path / "tap.py").write_text(program)
    assert about([sys.executable, str(tmp_path / "tap.py")], os.environ) is None


def test_a_tap_that_is_not_there() -> None:
    """Neither is a program that cannot be started."""
    assert about(["/nowhere/tap-x"], os.environ) is None
