"""Settings without which a tap falsifies values or leaves out rows: a run gives them to it beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.load.tap.database.kafka import KAFKA_TAP, kafka_settings

_NAMES = "SET NAMES utf8mb4"
"""pipelinewise-tap-mysql connects with `utf8`, which in MySQL has three bytes a character: an emoji comes as `?`."""
_SESSION = (
    'SET @@session.time_zone="+0:00"',
    "SET @@session.wait_timeout=28800",
    "SET @@session.net_read_timeout=3600",
    "SET @@session.innodb_lock_wait_timeout=3600",
)
"""The statements that that tap sends to the server if its setting `session_sqls` is absent."""


def session_settings(package: str, settings: Mapping[str, Any], state: Any = None) -> dict[str, Any]:
    """The settings that a package's tap needs beside `settings`; a choice of characters that is made there stays."""
    if package == KAFKA_TAP:
        return kafka_settings(settings, state)
    if package != "pipelinewise-tap-mysql":
        return {}
    session = settings.get("session_sqls", _SESSION)
    if not isinstance(session, list | tuple) or any("set names" in str(sql).lower() for sql in session):
        return {}
    return {"session_sqls": [*session, _NAMES]}
