"""Which events of a binary log change which tables after a position."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.load.slots.unread import changed_by

ORDERS, LINES = ("shop", "orders"), ("shop", "order.lines")


def events(*kinds: tuple[str, str]) -> list[list[Any]]:
    return [["binlog.000002", 100 * n, kind, 1, 100 * (n + 1), info] for n, (kind, info) in enumerate(kinds)]


BEGIN = ("Gtid", "BEGIN GTID 0-1-7")
ORDERS_MAP, LINES_MAP = ("Table_map", "table_id: 18 (shop.orders)"), ("Table_map", "table_id: 19 (shop.order.lines)")
ROWS = ("Write_rows_v1", "table_id: 18 flags: STMT_END_F")


@pytest.mark.parametrize(
    ("log", "changed"),
    [
        ([], set()),
        ([BEGIN, ("Annotate_rows", "insert into orders values (1)"), ORDERS_MAP, ROWS, ("Xid", "COMMIT")], {ORDERS}),
        ([BEGIN, LINES_MAP, ("Update_rows_v1", "table_id: 19 flags: STMT_END_F"), ("Query", "COMMIT")], {LINES}),
        ([BEGIN, ("Table_map", "table_id: 20 (other.orders)"), ("Xid", "COMMIT /* xid=7 */")], set()),
        ([("Anonymous_Gtid", "SET @@SESSION.GTID_NEXT= 'ANONYMOUS'"), ("Query", "BEGIN"), ORDERS_MAP], {ORDERS}),
        ([("Query", "use `shop`; truncate table orders")], None),  # of which table, nobody reads in a statement
        ([ROWS], None),  # the position is between a table's map and its rows
        ([("Rotate", "binlog.000003;pos=4")], None),  # there is more in another file
        ([("Transaction_payload", "compression='ZSTD'")], None),
    ],
)
def test_changed_by(log: list[tuple[str, str]], changed: set[Any] | None) -> None:
    """A table is changed by its map; an event that may be of any table leaves it open."""
    assert changed_by(events(*log), {ORDERS: ("binlog.000002", 0), LINES: ("binlog.000002", 0)}) == changed


def test_each_table_has_its_own_position() -> None:
    """What stands before a table's position has been read."""
    log = events(BEGIN, ORDERS_MAP, ROWS, LINES_MAP)
    assert changed_by(log, {ORDERS: ("binlog.000002", 300), LINES: ("binlog.000002", 300)}) == {LINES}
