"""Bookmarks in a binary log, without a server: which are refused, and what is noted."""

from __future__ import annotations

import pytest

from bridge.load.slots.binlog import Binlog, BinlogPlace, places

LOG = Binlog("mariadb 1 0", {"log.1": 500, "log.2": 90}, {("log.1", 400): "0-1-7"})


@pytest.mark.parametrize(
    ("mark", "noted", "why"),
    [
        (("log.1", 400), None, ""),
        (("log.1", 400), BinlogPlace("mariadb 1 0", "log.1", 400, "0-1-7"), ""),
        (
            ("log.1", 400),
            BinlogPlace("mariadb 1 0", "log.1", 300, "0-1-5"),
            "",
        ),  # the run died before it noted the bookmark
        (("log.1", 400), BinlogPlace("mariadb 1 0"), ""),
        (("log.1", 400), BinlogPlace("mariadb 1 0", "log.1", 400, "0-1-9"), "has other transactions than the bookmark"),
        (("log.1", 400), BinlogPlace("mariadb 2 0", "log.1", 400, "0-1-7"), "from another server (mariadb 2 0, now"),
        (("log.2", 91), None, "log.2 ends before the bookmark"),
        (("log.9", 4), None, "no longer has the binary log log.9"),
    ],
)
def test_a_bookmark_of_another_log(mark: tuple[str, int], noted: BinlogPlace | None, why: str) -> None:
    """The server, the length of the file, and what MariaDB has before the place."""
    assert (why in LOG.refusal(mark, noted)) if why else not LOG.refusal(mark, noted)


def test_the_place_in_a_bookmark() -> None:
    """None where the tap has written none, or something else."""
    state = {"bookmarks": {"a": {"log_file": "log.1", "log_pos": 4}, "b": {"replication_key_value": 4}, "c": {}}}
    assert places(state, ["a", "b", "c", "d"]) == {"a": ("log.1", 4), "b": None, "c": None, "d": None}
    assert LOG.place(("log.1", 400)) == BinlogPlace("mariadb 1 0", "log.1", 400, "0-1-7")
