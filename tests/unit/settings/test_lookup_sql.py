"""Look-ups of a transform: what is taken apart, and which joins are refused."""

from __future__ import annotations

import pytest

from bridge.errors import SettingsError
from bridge.settings.sql.transform import read_transform

FROM = "SELECT s.* FROM stream s "


def test_a_look_up_is_taken_apart() -> None:
    """Its table, its name, its keys, and which of its columns are read."""
    text = (
        "SELECT s.*, c.Name AS n, r.* FROM stream AS s LEFT JOIN crm.customers c ON c.id = s.k AND s.x + 1 = c.Y "
        "JOIN `my-rates`.`day.rates` r USING (country) LEFT OUTER JOIN last ON last.id = r.id WHERE c.ok"
    )
    first, second, third = read_transform(text).lookups
    assert (first.pipeline, first.table, first.alias, first.keys) == ("crm", "customers", "c", ("id", "Y"))
    assert first.columns is not None
    assert first.columns >= {"name", "id", "y", "ok"}
    assert (second.pipeline, second.table, second.keys, second.columns) == ("my-rates", "day.rates", ("country",), None)
    assert (third.pipeline, third.table, third.alias, third.keys) == ("", "last", "last", ("id",))
    assert [one.leaves_out for one in (first, second, third)] == [False, True, False]
    assert list(map(str, (first, third))) == ["crm.customers", "last"]


def test_the_statement_over_other_names() -> None:
    """Each table has its name still."""
    text = "SELECT s.*, c.n, last.m FROM stream s LEFT JOIN crm.customers c USING (id) JOIN last ON last.id = s.id"
    assert read_transform(text).over("rows", ["id", "a"], "hidden", ["t1", "t2"]) == (
        "SELECT `s`.`id`, `s`.`a`, c.n, last.m , `s`.`hidden` FROM `rows` s "
        "LEFT JOIN `t1` c USING (id) JOIN `t2` AS `last` ON last.id = s.id"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{FROM}, c", "joined by a comma"),
        (f"{FROM} CROSS JOIN c", "only LEFT JOIN and JOIN"),
        (f"{FROM} RIGHT JOIN c ON c.id = s.id", "only LEFT JOIN and JOIN"),
        (f"{FROM} FULL JOIN c ON c.id = s.id", "only LEFT JOIN and JOIN"),
        (f"{FROM} LEFT SEMI JOIN c ON c.id = s.id", "only LEFT JOIN and JOIN"),
        (f"{FROM} LEFT ANTI JOIN c ON c.id = s.id", "only LEFT JOIN and JOIN"),
        (f"{FROM} NATURAL JOIN c", "only LEFT JOIN and JOIN"),
        (f"{FROM} JOIN c", "columns of c that equal"),
        (f"{FROM} LEFT JOIN c", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id > s.id", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id = s.id OR c.x = s.x", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id = s.id AND c.ok", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id = 1", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id = c.x", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id + 1 = s.id", "columns of c that equal"),
        (f"{FROM} JOIN c ON id = s.id", "columns of c that equal"),
        (f"{FROM} JOIN c ON c.id <=> s.id", "columns of c that equal"),
        (f"{FROM} JOIN x.y.c ON c.id = s.id", "what is joined is a table"),
        (f"{FROM} JOIN c TABLESAMPLE (1 ROWS) ON c.id = s.id", "what is joined is a table"),
        (f"{FROM} JOIN c VERSION AS OF 1 ON c.id = s.id", "what is joined is a table"),
        (f"{FROM} JOIN (SELECT 1 AS id) c ON c.id = s.id", "a subquery reads other rows"),
        (f"{FROM} JOIN c ON c.id = s.id JOIN d c ON c.x = s.x", "two tables of a transform have one name"),
        ("SELECT stream.* FROM stream JOIN x.stream USING (id)", "two tables of a transform have one name"),
        ("SELECT * FROM stream s JOIN c ON c.id = s.id", "* is of which table?"),
        (f"{FROM} JOIN c ON c.id = s.id GROUP BY s.id", "GROUP BY gathers rows"),
        ("SELECT max(c.n) AS m FROM stream s JOIN c ON c.id = s.id", "an aggregate"),
    ],
)
def test_other_joins_are_refused(text: str, reason: str) -> None:
    """With the reason."""
    with pytest.raises(SettingsError) as raised:
        read_transform(text)
    assert reason in raised.value.message
    assert raised.value.hint
