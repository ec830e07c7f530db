"""Positions of two STATEs are compared as far as they say which one is later."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bridge.protocol.singer.order import is_before, streams_ahead


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        (None, {"id": 1}, True),
        ({"id": 1}, None, False),
        ({"replication_key_value": 1}, {"replication_key_value": Decimal("1.5")}, True),
        ({"replication_key_value": "2024-01-01"}, {"replication_key_value": "2024-01-01T00:00:01Z"}, True),
        ({"lsn": 7, "version": 9}, {"lsn": 7, "version": 10}, False),
        ({"token": "a"}, {"token": "b"}, None),
        ({"lsn": 1, "token": "b"}, {"lsn": 2, "token": "a"}, None),
        ({"log_file": "a.2", "log_pos": 3}, {"log_file": "a.1", "log_pos": 5}, None),
        ({"id": True}, {"id": 2}, None),
        ({"id": Decimal("1.5")}, {"id": float("nan")}, None),
        ({"log_file": "a.1", "log_pos": 5}, {"log_file": "a.2", "log_pos": 3}, None),
        ({"partitions": [{"context": {"c": 1}, "at": 2}]}, {"partitions": [{"context": {"c": 1}, "at": 3}]}, True),
        ({"partitions": [{"context": {"c": 1}, "at": 2}]}, {"partitions": [{"context": {"c": 2}, "at": 1}]}, True),
    ],
)
def test_order_of_two_bookmarks(one: Any, other: Any, answer: bool | None) -> None:
    """Numbers and times have an order, an opaque text has none, and no position is before any."""
    assert is_before(one, other) is answer


@pytest.mark.parametrize(
    ("behind", "ahead", "streams"),
    [
        ({"bookmarks": {"a": {"id": 1}, "b": {"t": "x"}}}, {"bookmarks": {"a": {"id": 2}, "b": {"t": "y"}}}, ["a"]),
        ({"bookmarks": {"a": {"id": 2}}}, {"bookmarks": {"a": {"id": 1}}}, []),
        ({"bookmarks": {"a": {"t": "x"}}}, {"bookmarks": {"a": {"t": "y"}}}, None),
        ({}, {"bookmarks": {"a": {"id": 1}}}, ["a"]),
        ({"at": 1}, {"at": 2}, ["at"]),
        ({"at": 1}, None, []),
    ],
)
def test_streams_that_are_ahead(behind: Any, ahead: Any, streams: list[str] | None) -> None:
    """By stream, of a flat STATE by key."""
    assert streams_ahead(behind, ahead) == streams
