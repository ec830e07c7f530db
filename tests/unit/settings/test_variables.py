"""`${...}`, `.env` and plain values, from the file to the tap's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.settings.settings_files import PASSWORD, Load, file_text, refused


def test_variable_in_braces_needs_quotes(settings: Load) -> None:
    """The commonest syntax error, `{port: ${PORT}}`, is explained."""
    error = refused(lambda: settings(file_text(source="config: {port: ${PORT}}"), {"PORT": "1"}))
    assert '"${NAME}"' in error.hint


CONFIG = """\
config:
  whole: ${PORT}
  quoted: "${PORT}"
  flag: ${FLAG}
  partly: p${PORT}
  default: ${NOPE:-5}
  empty: ${EMPTY:-x}
  escaped: $${PORT}
  date: 2024-01-01
  time: 22:30
  country: no
  zip: 007
  number: 1.5
  nothing: null
  literal: a$b$$c
"""


def test_variables_and_plain_values(settings: Load) -> None:
    """An unquoted whole `${X}` is read like a value, everything else stays text; escapes and defaults work."""
    environ = {"PORT": "5432", "FLAG": "true", "EMPTY": ""}
    config = settings(file_text(source=CONFIG), environ).pipeline(None).source.config
    assert config == {
        "whole": 5432,
        "quoted": "5432",
        "flag": True,
        "partly": "p5432",
        "default": 5,
        "empty": "x",
        "escaped": "${PORT}",
        "date": "2024-01-01",
        "time": "22:30",
        "country": "no",
        "zip": "007",
        "number": 1.5,
        "nothing": None,
        "literal": "a$b$$c",
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${NOPE}", "variable is not set variable=NOPE key=pipelines.flights.source.config.password"),
        (f"${{NOPE-{PASSWORD}}}", "malformed ${...} key="),
        ("a ${NOPE", "malformed ${...} key="),
        ("${file:~nobody-here/x}", "cannot read ${file:...} path=~nobody-here/x"),
        ("${file:/nowhere/x}", "cannot read ${file:...} reason=No such file or directory path=/nowhere/x"),
    ],
)
def test_a_variable_that_cannot_be_had(settings: Load, value: str, message: str) -> None:
    """An unset variable stops the run with its name, file, line and key."""
    text = file_text(source=f"config:\n  password: {value}")
    assert f"bridge.yaml:6: {message}" in refused(lambda: settings(text)).message


def test_environment_is_text(settings: Load) -> None:
    """Values of `env` and `spark.conf` are text as written, quoted or not."""
    text = file_text(source="env: {PORT: 5432, ZIP: 007, FLAG: true}", more="spark: {conf: {a.b: 1}}")
    pipeline = settings(text).pipeline(None)
    assert pipeline.source.env == {"PORT": "5432", "ZIP": "007", "FLAG": "true"}
    assert pipeline.spark.conf == {"a.b": "1"}


def test_dotenv_fills_in_and_the_real_environment_wins(settings: Load, tmp_path: Path) -> None:
    """`.env` beside the file is loaded as written; a variable that is exported has priority."""
    (tmp_path / ".env").write_text("A=from-file\nB='pa$${ss'\nexport C=x # note\n")
    text = file_text(source='config: {a: "${A}", b: "${B}", c: "${C}"}')
    assert settings(text, {"A": "real"}).pipeline(None).source.config == {"a": "real", "b": "pa$${ss", "c": "x"}


def test_dotenv_that_cannot_be_read_is_an_error(settings: Load, tmp_path: Path) -> None:
    """A broken line of `.env` is told by number, not skipped with a warning."""
    (tmp_path / ".env").write_text(f"A=1\n\nB='{PASSWORD}\n")
    assert refused(lambda: settings(file_text(""))).message == ".env:3: not a NAME=value line"


def test_secret_files(settings: Load, tmp_path: Path) -> None:
    """`${file:...}` is the file's text without its last line break, beside the settings, never a number."""
    (tmp_path / "pw").write_text("12345678\n")
    pipeline = settings(file_text(source="config:\n  password: ${file:pw}")).pipeline(None)
    assert pipeline.source.config == {"password": "12345678"}
    assert pipeline.secrets == {"12345678"}


def test_free_keys_are_expanded_only_where_they_are_used(settings: Load) -> None:
    """A variable in an `x-*` key that nobody refers to need not be set."""
    assert settings("x-free: ${NOT_SET}\n" + file_text("")).pipeline("flights")
