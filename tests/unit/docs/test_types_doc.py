"""docs/types.md is true, row by row: from the tap's line to what each engine on this machine reads back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import simplejson

from bridge.operate.readers.table import Table
from bridge.protocol.schema.merging import Evolution, label
from bridge.protocol.schema.table_schema import from_singer, merge
from tests.support.engines import IN_PROCESS, by_spark, shown, table_of
from tests.support.one_spark import OneSpark
from tests.support.tables import INTEGER, STRING, Shop

DOC = (Path(__file__).parents[3] / "docs/types.md").read_text()
DEFINITIONS = json.loads(re.findall(r"```json\n(.*?)```", DOC, re.DOTALL)[0])
TOP = {"definitions": DEFINITIONS}
WORDS = {"float64": "double", "bool": "boolean", "date32": "date", "timestamp[us,UTC]": "timestamp", "json": "JSON"}


def rows_after(head: str) -> list[list[str]]:
    """The cells of every table with this head."""
    found = []
    for block in re.findall(rf"^\| {re.escape(head)} .*\n\|[-|]+\n((?:\|.*\n)+)", DOC, re.MULTILINE):
        found += [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
    return found


TYPES = [[cell.removeprefix("`").removesuffix("`") for cell in row] for row in rows_after("JSON Schema")]
KEPT = [row for row in TYPES if row[3] != "reject"]
REJECTED = [row for row in TYPES if row[3] == "reject"]
WAS = [cell.strip().strip("`") for cell in re.findall(r"^\| was (.*)\|$", DOC, re.MULTILINE)[0].split("|")[1:]]
CHANGES = {(row[0].strip("`"), new): cell for row in rows_after("was") for new, cell in zip(WAS, row[1:], strict=True)}
NAMES = [
    *(
        "a..b",
        "..",
        ".",
        "a b",
        'a"b',
        "a'b",
        "a`b",
        "a\\b",
        "a/b",
        "a,b",
        "a;b",
        "a=b",
        "{a}",
        "(a)",
        "[a]",
        "<a>",
        "a:b",
    ),
    *("a\nb", "a\tb", "%a", "$a", "#", "-", " a", "b ", "été", "日本語", "🚀", "id", "ID", "Id", "Straße", "STRASSE"),
    *("select", "_sdc_extra", "", "a\0b", "x" * 300, "\u200b", "e\u0301t\u00e9"),
]
RENAMED = {"ID": "ID_2", "Id": "Id_3", "STRASSE": "STRASSE_2", "_sdc_extra": "_sdc_extra_2", "": "_", "a\0b": "a_b"}
NODES: dict[str, tuple[dict[str, Any], Any]] = {
    "int64": ({"type": "integer"}, 9007199254740992),
    "double": ({"type": "number"}, 2.5),
    "boolean": ({"type": "boolean"}, True),
    "string": ({"type": "string"}, 'a "é"'),
    "date": ({"type": "string", "format": "date"}, "2024-02-29"),
    "timestamp": ({"type": "string", "format": "date-time"}, "2024-02-29T01:02:03.000004Z"),
    "decimal(10,2)": ({"type": "number", "precision": 10, "scale": 2}, 12345678.9),
    "decimal(38,9)": ({"type": "number", "multipleOf": 1e-9}, 1.000000001),
    "decimal(38,0)": ({"type": "integer", "maximum": 2**64}, 18446744073709551616),
    "struct": ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
    "list": ({"type": "array", "items": {"type": "integer"}}, [1, None]),
    "JSON": ({}, {"b": [1.5]}),
}
TEXT = {
    "int64": "9007199254740992",
    "double": "2.5",
    "boolean": "true",
    "string": 'a "é"',
    "date": "2024-02-29",
    "timestamp": "2024-02-29T01:02:03.000004Z",
    "decimal(10,2)": "12345678.9",
    "decimal(38,9)": "1.000000001",
    "decimal(38,0)": "18446744073709551616",
    "struct": '{"a":1}',
    "list": "[1,null]",
    "JSON": '{"b":[1.5]}',
}
"""The values of `NODES` as text."""


LISTED = {f"c{n}" for n, pair in enumerate(CHANGES) if "JSON" not in pair}
"""The pairs that items of lists can be of: `{}` does not say what an item is."""


EXACT = [pair for pair in CHANGES if pair[0] == "double" and pair[1].startswith("decimal")]
"""The changes to a narrower type, which need each stored value to fit."""


def word(field: Any) -> str:
    """The type as the document calls it."""
    said = label(field)
    return "list" if said.startswith("list") else WORDS.get(said, said)


def column_of(schema: str) -> Any:
    return from_singer({"properties": {"c": json.loads(schema)}, "definitions": DEFINITIONS}, []).arrow.field("c")


@pytest.mark.parametrize(("schema", "column"), dict.fromkeys((row[0], row[2]) for row in TYPES))
def test_column(schema: str, column: str) -> None:
    """The column of a schema has the type that its row names."""
    assert word(column_of(schema)) == column


def test_rejects(tmp_path: Path) -> None:
    """What a row says is a reject is one, with the place of the value, and its neighbours are stored."""
    assert REJECTED
    shop = Shop(tmp_path)
    columns = {f"c{n}": json.loads(row[0]) for n, row in enumerate(REJECTED)}
    lines = [f'{{"c{n}": {row[1]}}}' for n, row in enumerate(REJECTED)]
    shop.load("t", columns, [simplejson.loads(line, use_decimal=True) for line in [*lines, "{}"]], max_rejects=99)
    assert [reject["pointer"] for reject in shop.rejects] == [f"/c{n}" for n in range(len(REJECTED))]
    read = IN_PROCESS["pyarrow"](table_of(shop, "t"))
    assert (read.num_rows, sum(column.null_count for column in read.columns)) == (1, len(REJECTED))


def as_type(was: str, column: str) -> str:
    """A value of `NODES` as engines show it in a column of that type."""
    text = TEXT[was]
    quoted = json.dumps(text, ensure_ascii=False)
    if column == "string":
        return quoted
    if column == "JSON":
        return json.dumps(quoted if was in ("string", "date", "timestamp") else text, ensure_ascii=False)
    if column == "timestamp" and was == "date":
        return '"2024-02-29T00:00:00Z"'
    if column in ("date", "timestamp"):
        return quoted
    if column == "double":
        return str(float(text))
    if column.startswith("decimal"):
        return f"{Decimal(text):.{column[:-1].split(',')[1]}f}"
    return text


Changed = tuple[str, str, str]
"""A value before, a value of another type after, and the type that the column has for both, or had."""


def changes(policy: str) -> dict[str, tuple[Changed, str | None]]:
    """Each pair of types by its column, with the type of the column, and of its variant if that gets the new value."""
    found: dict[str, tuple[Changed, str | None]] = {}
    for n, ((was, now), cell) in enumerate(CHANGES.items()):
        if policy == "rewrite" and (was, now) in EXACT:
            continue  # the older type again makes text of it
        beside = not cell or (was, cell) == ("int64", "decimal(38,0)")  # the one that needs neither
        variant = policy == "variant" and not beside
        found[f"c{n}"] = (was, now, was if variant else cell or was), "string" if variant else None
    return found


class Lake:
    """Tables with everything that the document says, and what is to be read of them."""

    def __init__(self, root: Path) -> None:
        self.shop = Shop(root)
        self.expected: dict[str, list[dict[str, str]]] = {}
        self._types()
        self._names()
        for policy in ("rewrite", "variant"):
            self._change(policy, changes(policy))

    def _types(self) -> None:
        columns = {f"c{n}": json.loads(row[0]) for n, row in enumerate(KEPT)}
        text = ", ".join(f'"c{n}": {row[1]}' for n, row in enumerate(KEPT))
        record = simplejson.loads(f"{{{text}}}", use_decimal=True)
        self.shop.load("types", {"n": INTEGER, **columns}, [{"n": 0, **record}, {"n": 1}], top=TOP)
        values = {f"c{n}": row[3] for n, row in enumerate(KEPT)}
        self.expected["types"] = [{"n": "0", **values}, {"n": "1", **dict.fromkeys(values, "null")}]

    def _names(self) -> None:
        """Each name is a column of its own, also when the types change."""
        names = ["n", *NAMES, *(f"column {n}" for n in range(1000))]
        self.shop.load("names", dict.fromkeys(names, INTEGER), [{name: n for n, name in enumerate(names)}])
        self.shop.load("names", {**dict.fromkeys(reversed(names), STRING), "n": INTEGER}, [dict.fromkeys(names, 1)])
        columns = [RENAMED.get(name, name) for name in names]
        old = {"n": "0"} | {name: f'"{n}"' for n, name in enumerate(columns) if n}
        self.expected["names"] = [old, {"n": "1"} | dict.fromkeys(columns[1:], '"1"')]

    def _change(self, policy: Any, pairs: dict[str, tuple[Changed, str | None]]) -> None:
        """Rows of the older SCHEMA, then again and the newer one in the same commit, then the older one again.

        Each pair of types changes as a column, as the items of a list and as a field of objects in a list.
        """
        sides = [{c: NODES[changed[at]] for c, (changed, _) in pairs.items()} for at in (0, 1)]
        schemas = [{"n": INTEGER, **_columns(side)} for side in sides]
        records = [_record(side) for side in sides]
        how = Evolution(on_type_change=policy)
        self.shop.load(policy, schemas[0], [{"n": 0, **records[0]}], evolution=how)
        before = schemas[0], [{"n": 1, **records[0]}]
        self.shop.load(policy, schemas[1], [{"n": 2, **records[1]}], evolution=how, before=before)
        self.shop.load(policy, schemas[0], [{"n": 3, **records[0]}], evolution=how)
        self.expected[policy] = [{"n": str(n)} | _read(pairs, n == 2) for n in range(4)]


def _columns(side: dict[str, tuple[dict[str, Any], Any]]) -> dict[str, Any]:
    nodes = {c: node for c, (node, _) in side.items()}
    lists = {f"{c} items": {"type": "array", "items": node} for c, node in nodes.items() if c in LISTED}
    return nodes | lists | {"o": {"type": "array", "items": {"type": "object", "properties": nodes}}}


def _record(side: dict[str, tuple[dict[str, Any], Any]]) -> dict[str, Any]:
    values = {c: value for c, (_, value) in side.items()}
    return values | {f"{c} items": [value, None] for c, value in values.items() if c in LISTED} | {"o": [values, None]}


def _read(pairs: dict[str, tuple[Changed, str | None]], new: bool) -> dict[str, str]:
    """What is to be read of one row."""
    plain: dict[str, str] = {}
    lists: dict[str, str] = {}
    for column, ((was, now, type_), variant) in pairs.items():
        value = now if new else was
        plain[column] = "null" if new and variant else as_type(value, type_)
        if variant:
            plain[f"{column}__string"] = as_type(value, "string") if new else "null"
        if column in LISTED:
            lists |= _listed(f"{column} items", was, now, type_, variant, new)
    ordered = {name: plain[name] for name in sorted(plain, key=lambda name: name.endswith("__string"))}
    inside = "{" + ",".join(f'"{name}":{value}' for name, value in ordered.items()) + "}"
    return plain | lists | {"o": f"[{inside},null]"}


def _listed(name: str, was: str, now: str, type_: str, variant: str | None, new: bool) -> dict[str, str]:
    """The items of a list, which have no variant of their own."""
    if not variant:
        return {name: f"[{as_type(now if new else was, type_)},null]"}
    text = json.dumps(f"[{as_json(now)},null]", ensure_ascii=False)
    return {name: "null" if new else f"[{as_type(was, type_)},null]", f"{name}__string": text if new else "null"}


def as_json(was: str) -> str:
    """A value of `NODES` inside of JSON text."""
    return str(json.loads(as_type(was, "JSON")))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda fd: None)  # no power cut
        return Lake(tmp_path_factory.mktemp("types"))


@pytest.fixture
def spark(one_spark: OneSpark) -> Iterator[Any]:
    with one_spark.session({"spark.sql.debug.maxToStringFields": "10"}) as session:
        yield session


def check(lake: Lake, stream: str, read: Callable[[Table], Any]) -> None:
    """Compare what an engine reads of a table, in one statement, with what the document says."""
    rows = sorted(shown(read(table_of(lake.shop, stream))), key=lambda row: int(row["n"]))
    for number, (row, wanted) in enumerate(zip(rows, lake.expected[stream], strict=True)):
        wrong = {name: (row.get(name), value) for name, value in wanted.items() if row.get(name) != value}
        assert not wrong, (stream, number, dict(list(wrong.items())[:5]))
        assert row.keys() == wanted.keys()


@pytest.mark.parametrize("stream", ["types", "names", "rewrite", "variant"])
@pytest.mark.parametrize("engine", IN_PROCESS)
def test_every_row_is_read(lake: Lake, engine: str, stream: str) -> None:
    """Each value of the document is read back as it says, each type change leaves one table with all of its values."""
    check(lake, stream, IN_PROCESS[engine])


@pytest.mark.timeout(600)
def test_spark_reads_every_row(lake: Lake, spark: Any) -> None:
    """Spark reads the same."""
    for stream in lake.expected:
        check(lake, stream, lambda asked: by_spark(spark, asked))


@pytest.mark.parametrize(("was", "now"), CHANGES)
def test_a_changed_type(was: str, now: str) -> None:
    """A column whose type changes gets the type of the document's cell, and the older type changes nothing again.

    Of a decimal that was a double it makes text: not every double has so many digits.
    """
    old, new = (from_singer({"properties": {"c": NODES[name][0]}}, []) for name in (was, now))
    merged = merge(old, new)
    assert word(merged.arrow.field("c")) == (CHANGES[was, now] or was)
    again = word(merge(merged, old).arrow.field("c"))
    assert again == ("string" if (was, now) in EXACT else word(merged.arrow.field("c")))


@pytest.mark.parametrize("engine", IN_PROCESS)
def test_doubles_that_become_decimals(engine: str, tmp_path: Path) -> None:
    """As columns, as items of lists and in objects, where each stored value has the digits of the new type."""
    shop = Shop(tmp_path)
    sides = [{f"c{n}": NODES[pair[at]] for n, pair in enumerate(EXACT)} for at in (0, 1)]
    sides[0] = {name: (node, 4.0) for name, (node, _) in sides[0].items()}
    for n, side in enumerate(sides):
        shop.load("t", {"n": INTEGER, **_columns(side)}, [{"n": n, **_record(side)}])
    old, new = sorted(shown(IN_PROCESS[engine](table_of(shop, "t"))), key=lambda row: int(row["n"]))
    for n, (_, now) in enumerate(EXACT):
        scale = int(now[:-1].split(",")[1])
        assert (old[f"c{n}"], new[f"c{n}"]) == (f"{Decimal(4):.{scale}f}", as_type(now, now))
        assert old[f"c{n} items"] == f"[{Decimal(4):.{scale}f},null]" if f"c{n}" in LISTED else True
