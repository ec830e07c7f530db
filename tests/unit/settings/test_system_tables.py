"""`system_tables` at the top of bridge.yaml: where it may point, and what is refused with its line."""

from __future__ import annotations

import pytest

from tests.unit.settings.settings_files import GOOD, Load, refused


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("system_tables: {}\n", "_bridge"),
        ("system_tables: {path: meta/bridge}\n", "meta/bridge"),
        ("system_tables: {path: '${FOLDER:-meta}'}\n", "meta"),
    ],
)
def test_where_they_are(text: str, path: str | None, settings: Load) -> None:
    """Nowhere unless the key is written; it holds for every pipeline, in every environment."""
    assert settings(GOOD + text).pipeline(None).system_tables == path
    assert settings(GOOD + text + "environments: {prod: {}}\n", env="prod").pipeline(None).system_tables == path


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("system_tables:\n", "must be a mapping"),
        ("system_tables: _bridge\n", "must be a mapping"),
        ("system_tables: {folder: x}\n", "unknown key system_tables.folder"),
        ("system_tables: {path: 3}\n", "must be text"),
        ("system_tables: {path: .hidden}\n", "no part of the path may start with a dot"),
        ("system_tables: {path: /absolute}\n", "must be a relative path"),
        ("system_tables: {path: '{pipeline}'}\n", "has no placeholders"),
        ("system_tables: {path: '${NOWHERE}'}\n", "NOWHERE"),
        ("system_tables: {path: flights}\n", "cannot be where a pipeline's tables are"),
        ("system_tables: {path: Flights}\n", "cannot be where a pipeline's tables are"),
        ("system_tables: {path: flights/x}\n", "cannot be where a pipeline's tables are"),
    ],
)
def test_what_is_refused(text: str, error: str, settings: Load) -> None:
    """With file and line; a folder with tables, or around one, would give their readers files of ours."""
    problem = refused(lambda: settings(GOOD + text))
    assert error in problem.message + problem.hint
    assert f"bridge.yaml:{GOOD.count(chr(10)) + 1}:" in problem.message
