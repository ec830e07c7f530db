"""What a database answers, and whether its log can be read: each reason says what to set."""

from __future__ import annotations

import pytest

from bridge.load.slots.log_ready import PostgresTable, binlog_problem

GRANTS = [["GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `reader`@`%`"], ["GRANT SELECT ON `shop`.* TO x"]]
FILES = [["binlog.000001", 4]]


@pytest.mark.parametrize(
    ("log", "files", "grants", "words"),
    [
        ([[1, "ROW", "FULL", "8.0.36"]], FILES, GRANTS, ""),
        ([["ON", "ROW", "FULL", "10.11-MariaDB"]], FILES, [["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"]], ""),
        ([[0, "ROW", "FULL", "8"]], FILES, GRANTS, "set log_bin"),
        ([[1, "MIXED", "FULL", "8"]], FILES, GRANTS, "binlog_format is MIXED"),
        ([[1, "ROW", "MINIMAL", "8"]], FILES, GRANTS, "binlog_row_image is MINIMAL"),
        ([[1, "ROW", "FULL", "8"]], None, GRANTS, "GRANT REPLICATION CLIENT"),
        ([[1, "ROW", "FULL", "8"]], FILES, GRANTS[1:], "GRANT REPLICATION CLIENT"),
        ([[1, "ROW", "FULL", "8"]], FILES, None, "GRANT REPLICATION CLIENT"),
        (None, FILES, GRANTS, "does not say"),
    ],
)
def test_a_binary_log(log: object, files: object, grants: object, words: str) -> None:
    """Rows, whole, that this user may read; an answer that did not come counts as a no."""
    problem = binlog_problem(log, files, grants)
    assert (words in problem, bool(problem)) == (True, bool(words))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (PostgresTable("r", "p", "d", True, []), ""),
        (PostgresTable("r", "p", "f", False, []), ""),
        (PostgresTable("r", "p", "d", False, []), "no REPLICA IDENTITY"),
        (PostgresTable("r", "p", "n", True, []), "no REPLICA IDENTITY"),
        (PostgresTable("r", "u", "d", True, []), "an unlogged table"),
        (PostgresTable("p", "p", "d", True, []), "a partitioned table, whose changes come under its partitions' names"),
        (PostgresTable("v", "p", "n", False, []), "a view"),
        (PostgresTable("f", "p", "n", False, []), "a foreign table"),
    ],
)
def test_a_table_of_postgresql(table: PostgresTable, problem: str) -> None:
    """The log tells the changes of a plain table whose rows it can name."""
    assert table.problem == problem
