"""What a tap needs so that it does not falsify values, beside the settings that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.load.tap.installed import tap_package
from bridge.load.tap.session_settings import session_settings


def needed(program: str, settings: dict[str, Any], state: Any = None) -> dict[str, Any]:
    """The settings of a program's package."""
    return session_settings(tap_package(program)[0].lower(), settings, state)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The program `tap-mysql` in a venv that pipelinewise's package made."""
    package = tmp_path / "lib" / "python3.11" / "site-packages" / "pipelinewise_tap_mysql-1.7.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: pipelinewise-tap-mysql\nVersion: 1.7.0\n")
    (package / "entry_points.txt").write_text("[console_scripts]\ntap-mysql = tap_mysql:main\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tap-mysql").touch()
    return str(tmp_path / "bin" / "tap-mysql")


def test_mysql_speaks_of_all_characters(program: str) -> None:
    """The tap's own statements come first, then the one that lets an emoji through."""
    own = needed(program, {})["session_sqls"]
    assert own[0] == 'SET @@session.time_zone="+0:00"'
    assert own[-1] == "SET NAMES utf8mb4"
    assert needed(program, {"session_sqls": ["SET x = 1"]}) == {"session_sqls": ["SET x = 1", own[-1]]}


def test_a_choice_in_the_settings_stays(program: str) -> None:
    """Whoever names the characters, or writes what no list is, is left alone; so is every other tap."""
    assert needed(program, {"session_sqls": ["set names latin1"]}) == {}
    assert needed(program, {"session_sqls": "SET x = 1"}) == {}
    assert needed("/bin/sh", {}) == {}


def test_kafka_begins_where_no_message_is_left_out(program: str) -> None:
    """Its own offsets may be ahead of the lake; a partition without a bookmark is new once others have one."""
    package = next(Path(program).parents[1].glob("lib/*/*/*.dist-info"))
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: pipelinewise-tap-kafka\nVersion: 8.2.1\n")
    state = {"bookmarks": {"orders": {"partition_0": {"partition": 0, "offset": 5}}}}
    beginning = {"initial_start_time": "beginning"}
    assert needed(program, {"topic": "orders", "initial_start_time": "earliest"}) == beginning
    assert needed(program, {"topic": "orders"}, state) == beginning
    assert needed(program, {"topic": "orders"}) == {}
    assert needed(program, {"topic": "orders", "initial_start_time": "2026-01-01"}, state) == {}
