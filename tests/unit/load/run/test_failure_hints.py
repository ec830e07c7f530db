"""What is added to a tap's last words."""

from __future__ import annotations

import pytest

from bridge.errors import TapError
from bridge.load.run.checks.failure_hints import explained, restarted
from bridge.load.tap.stderr import LAST_LINES
from tests.support.catalogs import catalog, stream
from tests.unit.conftest import Load

LOGGED = catalog(stream("a", selected=True, replication_method="LOG_BASED"), stream("b", selected=True))


@pytest.mark.parametrize(
    "words",
    [
        "pymongo.errors.OperationFailure: Resume was not possible, as the resume point may no longer be in the oplog.",
        "Exception: Unable to replicate binlog stream because the following binary log(s) no longer exist: log.1",
        "(1236, 'Could not find first log file name in binary log index file')",
    ],
)
def test_a_bookmark_that_the_database_cannot_follow(settings: Load, words: str) -> None:
    """The hint has the command that loads the streams of the log again, and those only."""
    pipeline = settings("pipelines: {p: {source: {tap: t}, destination: {bucket: b}}}").pipeline("p")
    hint = explained(TapError("it failed", hint=f"{LAST_LINES}\n{words}"), pipeline, LOGGED)
    assert "load again: singer-bridge run p --full -s a\n" in hint
    other = explained(TapError("it failed", hint=f"{LAST_LINES}\nKeyError: 'a'"), pipeline, LOGGED)
    assert "load again" not in other


def test_a_tap_that_goes_on_without_its_bookmark() -> None:
    """What meltanolabs-tap-mongodb writes then."""
    line = b"WARNING tap-mongodb Unable to resume change stream from resume token. Resetting resume token.\n"
    assert (restarted(b"INFO starting\n" + line), restarted(b"INFO starting\n")) == (True, False)


@pytest.mark.parametrize(
    "words",
    [
        "KeyError: 'public-a'",
        "sqlalchemy.exc.NoSuchTableError: public.a",
        "sqlalchemy.exc.NoSuchTableError: a",
        'psycopg2.errors.UndefinedTable: relation "public.a" does not exist\nLINE 1: SELECT',
        "pymysql.err.ProgrammingError: (1146, \"Table 'public.a' doesn't exist\")",
    ],
)
def test_a_table_that_is_not_there(settings: Load, words: str) -> None:
    """The hint says how to go on without it; a key of something else is no table."""
    pipeline = settings("pipelines: {p: {source: {tap: t}, destination: {bucket: b}}}").pipeline("p")
    tables = catalog(stream("public-a", selected=True), stream("public-b", selected=True))
    hint = explained(TapError("it failed", hint=f"{LAST_LINES}\n{words}"), pipeline, tables)
    assert "no table public-a" in hint
    assert "`singer-bridge discover p`" in hint
    assert "`singer-bridge select p '!public-a'`" in hint
    other = explained(TapError("it failed", hint=f"{LAST_LINES}\nKeyError: 'host'"), pipeline, tables)
    assert "no table" not in other
