"""A table whose columns change: which files are written anew, which stay, and that no row and no value is lost."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from bridge.errors import DataError, EngineError, LakeError
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.changed_values import text_columns
from bridge.load.spool.folder import SealedBatch
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.partition import Partition
from bridge.load.write.rewrite import Older, rewrite
from bridge.load.write.task import write_bundle
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, from_singer, merge
from tests.support.engines import IN_PROCESS, table_of
from tests.support.lake import DEAD, Faulty, Lake, fail
from tests.support.load import accounting
from tests.support.s3server import S3Server
from tests.support.tables import INTEGER, STRING, Shop

NUMBER = {"type": ["null", "number"]}
VARIANT, DISCARD, FREEZE = Evolution("variant"), Evolution(schema_policy="discard"), Evolution(schema_policy="freeze")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def rows(shop: Shop, stream: str = "t") -> list[dict[str, Any]]:
    """What two engines read, ordered by `id`."""
    asked = table_of(shop, stream)
    found = [sorted(read(asked).to_pylist(), key=lambda row: row["id"]) for read in IN_PROCESS.values()]
    assert found[0] == found[1] == found[2]
    return found[0]


def files(shop: Shop, stream: str = "t") -> dict[str, bytes]:
    """The table's folder: the files by name."""
    folder = shop.root / table_of(shop, stream).folder
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_older_files_keep_their_names(shop: Shop) -> None:
    """A wider type replaces each older file under its name, in the commit that brings it; the old bytes are trash."""
    for n in range(2):
        shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": n, "v": n}])
    before = files(shop)
    record = shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 2, "v": "two"}])
    after = files(shop)
    assert before.keys() < after.keys()
    assert all(after[name] != data for name, data in before.items())
    (change,) = record.tables
    assert set(change.removes) == set(before)
    assert sum(add.rows for add in change.adds if not add.rewritten) == 1
    trash = [path.read_bytes() for path in below(shop.root / ".bridge/shop/trash")]
    assert sorted(trash) == sorted(before.values())
    assert rows(shop) == [{"id": 0, "v": "0"}, {"id": 1, "v": "1"}, {"id": 2, "v": "two"}]


@pytest.mark.heavy
def test_older_files_in_a_bucket_keep_their_names(tmp_path: Path) -> None:
    """The same in a bucket, where the new bytes of a large file wait as an upload to its own key."""
    text = b64encode(Random(5).randbytes(9 << 20)).decode()
    with S3Server() as server:
        shop = Shop(tmp_path, server.storage("s3://lake/team"))
        shop.load("t", {"id": INTEGER, "v": INTEGER, "w": STRING}, [{"id": 0, "v": 1, "w": text}], file_size=1 << 30)
        (name,) = shop.storage.list("shop/t")
        record = shop.load("t", {"id": INTEGER, "v": STRING, "w": STRING}, [{"id": 1, "v": "x"}])
        found = {
            n: pq.read_table(pa.BufferReader(shop.storage.read(f"shop/t/{n}"))) for n in shop.storage.list("shop/t")
        }
    assert [add.name for add in record.tables[0].adds if add.upload] == [name]
    rows = pa.concat_tables(found.values()).sort_by("id").to_pylist()
    assert rows == [{"id": 0, "v": "1", "w": text}, {"id": 1, "v": "x", "w": None}]


def test_what_has_the_column_not_is_left_alone(shop: Shop) -> None:
    """A file that can be read beside the wider type as it is keeps its bytes."""
    shop.load("t", {"id": INTEGER}, [{"id": 0}])
    (untouched,) = files(shop).items()
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 1, "v": 1}])
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 2, "v": "two"}])
    assert untouched in files(shop).items()
    assert [row["v"] for row in rows(shop)] == [None, "1", "two"]


def test_rows_stay_in_their_row_groups(shop: Shop) -> None:
    """A file that is written anew has its rows in their order, and those of a row group stay together."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": n, "v": n} for n in range(1000)])
    (name,) = files(shop)
    path = shop.root / table_of(shop, "t").folder / name
    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=300)
    job = WriteContext(str(shop.root), "shop", "run", 9, str(shop.spool), "zstd", {"t": TableLayout(path.parent.name)})
    job.layouts["t"] = TableLayout(str(path.parent.relative_to(shop.root)))
    wanted = merge(TableSchema(table.schema), from_singer({"properties": {"v": STRING}}, [])).stored
    key = str(path.relative_to(shop.root))
    report = rewrite(job, Older("t", name, key, 1000, 0, wanted.to_json(), live=True))
    found = pq.ParquetFile(shop.root / report.file.source)
    assert [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)] == [300, 300, 300, 100]
    assert found.read().column("v").to_pylist() == [str(n) for n in range(1000)]
    with pytest.raises(LakeError, match="other rows"):
        rewrite(job, Older("t", name, key, 999, 0, wanted.to_json(), live=True))


@pytest.mark.parametrize("value", [2**53 + 1, -(2**63) + 1])
def test_no_digit_is_lost(shop: Shop, value: int) -> None:
    """An integer that no double can hold is an error, and table and STATE are what they were."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": value}])
    before = files(shop)
    with pytest.raises(DataError, match="does not fit the column's new type") as caught:
        shop.load("t", {"id": INTEGER, "v": NUMBER}, [{"id": 1, "v": 0.5}])
    assert "variant" in caught.value.hint
    assert files(shop) == before
    assert Log(shop.storage, "shop").head() == 1
    shop.load("t", {"id": INTEGER, "v": NUMBER}, [{"id": 1, "v": 0.5}], evolution=VARIANT)
    assert rows(shop) == [{"id": 0, "v": value, "v__string": None}, {"id": 1, "v": None, "v__string": "0.5"}]


def test_no_digit_of_a_decimal_is_lost(shop: Shop) -> None:
    """Nor made up: 128 bits overflow in silence where older values get more digits after the point."""
    cents, fine = ({"type": "number", "multipleOf": step} for step in (0.01, 1e-9))
    shop.load("t", {"id": INTEGER, "v": cents}, [{"id": 0, "v": 2049746507529170342366712768426}])
    before = files(shop)
    with pytest.raises(DataError, match="does not fit the column's new type"):
        shop.load("t", {"id": INTEGER, "v": fine}, [{"id": 1, "v": 0.5}])
    assert files(shop) == before


CENTS = {"type": "number", "multipleOf": 0.01}


def test_a_double_becomes_the_decimal_of_a_better_schema(shop: Shop) -> None:
    """Each stored value has its digits, also inside lists, and sums go on."""
    numbers, cents = ({"type": "array", "items": items} for items in (NUMBER, CENTS))
    shop.load("t", {"id": INTEGER, "v": NUMBER, "l": numbers}, [{"id": 0, "v": 1.1, "l": [0.3, None]}])
    shop.load("t", {"id": INTEGER, "v": NUMBER}, [{"id": 1, "v": -1e6}, {"id": 2, "v": None}, {"id": 3, "v": 0.07}])
    shop.load("t", {"id": INTEGER, "v": CENTS, "l": cents}, [{"id": 4, "l": [0.5]}])
    assert [row["v"] for row in rows(shop)] == [Decimal("1.10"), -1000000, None, Decimal("0.07"), None]
    assert [row["l"] for row in rows(shop)] == [[Decimal("0.30"), None], None, None, None, [Decimal("0.50")]]


@pytest.mark.parametrize("value", [0.125, 1e36, "NaN", "Infinity"])
def test_a_double_with_other_digits_is_no_decimal(shop: Shop, value: Any) -> None:
    """Nothing is committed, and the hint says how to load the table anew."""
    shop.load("t", {"id": INTEGER, "v": NUMBER}, [{"id": 0, "v": value}])
    before = files(shop)
    with pytest.raises(DataError, match="does not fit the column's new type") as caught:
        shop.load("t", {"id": INTEGER, "v": CENTS}, [{"id": 1, "v": 0.5}])
    assert "run --full -s" in caught.value.hint
    assert files(shop) == before


def test_columns_that_become_text_are_named() -> None:
    """Numbers, times and booleans, wherever they are; other changes are not."""
    day, time = ({"type": "string", "format": name} for name in ("date", "date-time"))
    inner = {"type": "object", "properties": {"a": NUMBER, "b": day}}
    before = {"n": NUMBER, "d": CENTS, "t": time, "b": {"type": "boolean"}, "day": day, "i": INTEGER, "o": inner}
    items = {"type": "array", "items": INTEGER}
    changed = {"n": STRING, "d": NUMBER, "t": {"type": "boolean"}, "b": {}, "day": time, "i": CENTS, "l": items}
    changed["o"] = {"type": "object", "properties": {"a": STRING, "b": time}}
    old = from_singer({"properties": before | {"l": items}}, [])
    new = merge(old, from_singer({"properties": changed}, []))
    assert list(text_columns(old, new)) == ["n", "d", "t", "b", "o.a"]
    assert "d changes from decimal(38,2) to string" in text_columns(old, new)["d"]


def test_a_variant_writes_nothing_anew(shop: Shop) -> None:
    """New values go beside, older files keep their bytes, and the old type goes into the old column again."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 1}], evolution=VARIANT)
    first = files(shop)
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}], evolution=VARIANT)
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 2, "v": 3}], evolution=VARIANT)
    shop.load("t", {"id": INTEGER, "v": {"type": "object"}}, [{"id": 3, "v": {"a": 1.50}}], evolution=VARIANT)
    assert first.items() < files(shop).items()
    assert [(row["v"], row["v__string"]) for row in rows(shop)] == [
        (1, None),
        (None, "x"),
        (3, None),
        (None, '{"a":1.5}'),
    ]


NULL: dict[str, Any] = {"type": "null"}
ABSENT_OR_NULL = {"absent": {}, "null": {"o": NULL, "l": NULL}}


@pytest.mark.parametrize("later", ABSENT_OR_NULL.values(), ids=ABSENT_OR_NULL)
def test_a_variant_inside_a_column_of_which_a_schema_says_nothing(shop: Shop, later: dict[str, Any]) -> None:
    """The column is null where it is absent or null, and what it had stays; records that have it all the same fit."""
    for n, (kind, value) in enumerate([(INTEGER, 7), (STRING, "x")]):
        inner = {"type": "object", "properties": {"a": kind}}
        row = {"id": n, "o": {"a": value}, "l": [{"a": value}]}
        shop.load("t", {"id": INTEGER, "o": inner, "l": {"type": "array", "items": inner}}, [row], evolution=VARIANT)
    for n in (2, 3):
        shop.load("t", {"id": INTEGER} | later, [{"id": n, "o": None}, {"id": n + 10}], evolution=VARIANT)
        assert not shop.rejects
    first = {"a": 7, "a__string": None}
    second = {"a": None, "a__string": "x"}
    nothing = [{"id": n, "o": None, "l": None} for n in (2, 3, 12, 13)]
    assert rows(shop) == [{"id": 0, "o": first, "l": [first]}, {"id": 1, "o": second, "l": [second]}, *nothing]


def test_a_struct_with_a_variant_becomes_text(shop: Shop) -> None:
    """Of a field and its variant the one that has the value goes into the JSON."""
    for n, (kind, value) in enumerate([(INTEGER, 7), (STRING, "x"), (INTEGER, 8), (INTEGER, None)]):
        inner = {"type": "object", "properties": {"a": kind}}
        shop.load("t", {"id": INTEGER, "o": inner}, [{"id": n, "o": {"a": value}}], evolution=VARIANT)
    shop.load("t", {"id": INTEGER, "o": STRING}, [{"id": 4, "o": "text"}])
    assert [row["o"] for row in rows(shop)] == ['{"a":7}', '{"a":"x"}', '{"a":8}', '{"a":null}', "text"]


def test_discard(shop: Shop) -> None:
    """New columns and fields leave no trace, and what does not fit an old column is a reject."""
    inner = {"type": "object", "properties": {"a": INTEGER}}
    shop.load("t", {"id": INTEGER, "o": inner}, [{"id": 0, "o": {"a": 1}}])
    wider = {"type": "object", "properties": {"a": STRING, "b": STRING}}
    new = {"id": INTEGER, "o": wider, "new": STRING}
    records = [{"id": 1, "o": {"a": "2", "b": "x"}, "new": "y"}, {"id": 2, "o": {"a": "x"}}, {"id": 3, "new": {}}]
    shop.load("t", new, records, evolution=DISCARD, max_rejects=1)
    assert rows(shop) == [{"id": 0, "o": {"a": 1}}, {"id": 1, "o": {"a": 2}}, {"id": 3, "o": None}]
    assert [(reject["pointer"], reject["reason"]) for reject in shop.rejects] == [("/o/a", "not an integer")]


def test_freeze(shop: Shop) -> None:
    """Nothing of a SCHEMA with a new column is stored."""
    shop.load("t", {"id": INTEGER}, [{"id": 0}], evolution=FREEZE)
    with pytest.raises(DataError, match="a column is new column=new type=string"):
        shop.load("t", {"id": INTEGER, "new": STRING}, [{"id": 1}], evolution=FREEZE)
    assert rows(shop) == [{"id": 0}]


def test_a_commit_that_is_taken_back(shop: Shop) -> None:
    """When the commit that brought a wider type is taken back its older files have their old bytes again."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 1}])
    shop.lose("t", {"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}])
    assert rows(shop) == [{"id": 0, "v": 1}]
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}])
    assert rows(shop) == [{"id": 0, "v": "1"}, {"id": 1, "v": "x"}]


def test_a_commit_that_is_rolled_forward(shop: Shop) -> None:
    """A run that died right after its commit is finished by the next one, rewritten files and all."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 1}])
    storage = Faulty(Lake(shop.root), publish=fail)
    storage.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}], storage=storage)
    open_committer(shop.storage, "shop", "next", last={"closed": 1})
    assert rows(shop) == [{"id": 0, "v": "1"}, {"id": 1, "v": "x"}]


def test_rollback(shop: Shop) -> None:
    """The commit before a wider type comes back with its types and its bytes; the type may widen again."""
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 1}])
    before = files(shop)
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}])
    open_committer(shop.storage, "shop", "next", last=DEAD)
    roll_back(shop.storage, "shop", 1)
    assert list(files(shop).values()) == list(before.values())
    assert rows(shop) == [{"id": 0, "v": 1}]


def test_a_column_that_names_folders(shop: Shop) -> None:
    """Folders are named after the older type's text, so such a column keeps its type; other columns may change."""
    shop.layout = {"partition_by": (Partition("day"),)}
    day = {"type": ["null", "string"], "format": "date"}
    shop.load("t", {"id": INTEGER, "day": day, "v": INTEGER}, [{"id": 0, "day": "2024-02-29", "v": 1}])
    shop.load("t", {"id": INTEGER, "day": day, "v": STRING}, [{"id": 1, "day": "2024-02-29", "v": "x"}])
    folder = shop.root / table_of(shop, "t").folder / "day=2024-02-29"
    assert [path.parent for path in below(folder)] == [folder, folder]
    assert sorted(v for path in below(folder) for v in pq.read_table(path, partitioning=None)["v"].to_pylist()) == [
        "1",
        "x",
    ]
    with pytest.raises(DataError, match="names folders changes its type stream=t column=day"):
        shop.load("t", {"id": INTEGER, "day": STRING, "v": STRING}, [{"id": 2, "day": "soon"}])


class Held:
    """A run that keeps rows pending past a barrier."""

    def __init__(self, shop: Shop, adopted: dict[str, int]) -> None:
        self.shop, self.seq = shop, 0
        self.committer = open_committer(shop.storage, "shop", "run", last={"closed": Log(shop.storage, "shop").head()})
        targets = {"t": TableLayout("shop/t")}
        self.job = WriteContext(
            str(shop.root), "shop", "run", self.committer.generation, str(shop.spool), "zstd", targets
        )
        self.ledger = accounting(self.committer, self.job, continued=adopted, max_rejects=0)

    def take(self, properties: dict[str, Any], records: list[dict[str, Any]], known: Any = None) -> TableSchema:
        """Have Spark's part done for RECORDs under a SCHEMA, and return the table's columns."""
        self.seq += 1
        schema = merge(known, from_singer({"properties": properties}, []))
        segment = self.shop._segment("t", schema, records, None, self.seq)
        self.ledger.add(SealedBatch(self.seq, [[segment]]), [write_bundle(self.job, self.seq, [segment])])
        return schema

    def barrier(self, n: int, schema: TableSchema, *, publish: Any = None, staged: Any = None) -> None:
        state = {"bookmarks": {"t": n}}
        barrier = Barrier(state, False, publish or {}, staged or {}, {"t": schema}, False)
        self.ledger.commit(self.ledger.prepare(barrier, through=self.seq))


def test_rows_that_were_held(shop: Shop) -> None:
    """Rows that waited past barriers while their column's type changed are published with the wider one."""
    run = Held(shop, {})
    schema = run.take({"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 0}])
    run.barrier(1, schema)
    schema = run.take({"id": INTEGER, "v": NUMBER}, [{"id": 1, "v": 1.5}], schema)
    run.barrier(2, schema)
    schema = run.take({"id": INTEGER, "v": STRING}, [{"id": 2, "v": "x"}], schema)
    run.barrier(3, schema, publish={"t": "append-only"})
    assert [row["v"] for row in rows(shop)] == ["0", "1.5", "x"]
    assert list(below(shop.root / ".bridge/shop/pending")) == []


def test_rows_that_were_staged(shop: Shop) -> None:
    """A half loaded table goes on in the next run although a column has another type there."""
    run = Held(shop, {})
    schema = run.take({"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 5}])
    run.ledger.pending["t"].versions = {7}
    run.barrier(1, schema, staged={"t": 7})
    run = Held(shop, {"t": 7})
    wider = run.take({"id": INTEGER, "v": STRING}, [{"id": 1, "v": "x"}], schema)
    run.ledger.pending["t"].versions = {7}
    run.barrier(2, wider, staged={"t": 7})
    run = Held(shop, {"t": 7})
    run.barrier(3, wider, publish={"t": "overwrite"})
    assert rows(shop) == [{"id": 0, "v": "5"}, {"id": 1, "v": "x"}]


def test_an_upload_cannot_be_read(shop: Shop) -> None:
    """Pending rows that are an upload still are an error that says what to do, and nothing is committed."""
    run = Held(shop, {})
    schema = run.take({"id": INTEGER, "v": INTEGER}, [{"id": 0, "v": 0}])
    files = run.ledger.pending["t"].files
    files[0] = structs.replace(files[0], upload="an upload")
    schema = run.take({"id": INTEGER, "v": STRING}, [{"id": 2, "v": "x"}], schema)
    with pytest.raises(DataError, match="between two commits") as caught:
        run.barrier(1, schema, publish={"t": "append-only"})
    assert "variant" in caught.value.hint
    assert Log(shop.storage, "shop").head() == 0


def test_nothing_is_written_anew_for_new_columns(shop: Shop) -> None:
    """New columns and fields, columns that left, an integer that grew: older files keep their bytes."""
    struct = {"type": "object", "properties": {"a": INTEGER}}
    shop.load("t", {"id": INTEGER, "gone": STRING, "o": struct}, [{"id": 0, "gone": "x", "o": {"a": 1}}])
    before = files(shop)
    wider = {"type": "object", "properties": {"a": INTEGER, "b": STRING}}
    shop.load("t", {"id": {"type": "integer", "maximum": 10**30}, "o": wider, "new": INTEGER}, [{"id": 10**20}])
    assert before.items() < files(shop).items()
    assert [row["id"] for row in rows(shop)] == [0, 10**20]


@pytest.mark.parametrize("keys", [("id",), ("id", "v")])
def test_another_type_under_upsert(shop: Shop, keys: tuple[str, ...]) -> None:
    """Rows are found by their key although its column, or another one, has another type now."""
    old, new = {"id": INTEGER, "v": INTEGER}, {"id": INTEGER, "v": STRING}
    first = [[{"id": 0, "v": 0}, {"id": 1, "v": 1}], [{"id": 2, "v": 2}]]
    for records in first:
        _upsert(shop, old, records, keys)
    _upsert(shop, new, [{"id": 1, "v": "1"}, {"id": 3, "v": "x"}], keys)
    assert [(row["id"], row["v"]) for row in rows(shop)] == [(0, "0"), (1, "1"), (2, "2"), (3, "x")]


def _upsert(shop: Shop, properties: dict[str, Any], records: list[dict[str, Any]], keys: tuple[str, ...]) -> None:
    shop.layout = {"keys": keys}
    shop.load("t", properties, records)


KEY_KINDS = (INTEGER, STRING)
KINDS = (INTEGER, STRING, NUMBER, {"type": ["null", "boolean"]}, {})
TEXTS = ("1", "2", "x", "", "true", '{"a":1}')


def _random_schema(random: Random, depth: int = 0) -> dict[str, Any]:
    kind = random.random() if depth < 3 else 1.0
    if kind < 0.35:
        names = random.sample("abc", random.randint(1, 3))
        return {"type": ["null", "object"], "properties": {name: _random_schema(random, depth + 1) for name in names}}
    if kind < 0.5:
        return {"type": ["null", "array"], "items": _random_schema(random, depth + 1)}
    return random.choice(KINDS)


def _random_value(random: Random, schema: dict[str, Any]) -> Any:
    if "properties" in schema:
        return {
            name: _random_value(random, inner) for name, inner in schema["properties"].items() if random.random() < 0.8
        }
    if "items" in schema:
        return [_random_value(random, schema["items"]) for _ in range(random.randint(0, 3))]
    values: list[Any] = {"integer": [-1, 0, 1, 2], "number": [1, -2, 0.5], "boolean": [True, False]}.get(
        schema.get("type", ["string"])[-1], [*TEXTS, *([] if "type" in schema else [3, [1], {"a": None, "b": "1"}])]
    )
    return random.choice(values) if random.random() < 0.9 else None


def _plain(value: Any) -> Any:
    """A value whatever its column's type: text is what it says as JSON, a field is itself or its variant."""
    if isinstance(value, str):
        try:
            return _plain(json.loads(value))
        except ValueError:
            return value
    if isinstance(value, dict):
        plain: dict[str, Any] = {}
        for name, inner in value.items():
            if inner is not None:
                plain[name.removesuffix("__string")] = _plain(inner)
        return plain
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(12))
def test_keys_and_nested_fields_of_changing_types(shop: Shop, seed: int) -> None:
    """Whatever types a key and a nested column have from load to load: each key is there once, with its last value.

    A key's value counts by its text once its column has held text: 1 and "1" are one row.
    """
    random = Random(seed)
    shop.layout = {"keys": ("id",)}
    expected: dict[str, Any] = {}
    for _ in range(5):
        change = random.choice(["rewrite", "variant"])
        key, kind = random.choice(KEY_KINDS), _random_schema(random)
        values = [0, 1, 2] if key is INTEGER else ["0", "1", "x"]
        records = [{"id": random.choice(values), "v": _random_value(random, kind)} for _ in range(4)]
        evolution = Evolution(change, keys=("id",))
        shop.load("t", {"id": key, "v": kind}, records, evolution=evolution)
        expected |= {str(record["id"]): _plain(record["v"]) for record in records}
    table = table_of(shop, "t")
    for read in IN_PROCESS.values():
        found = read(table).to_pylist()
        names = [name for name in found[0] if name.startswith("v")]
        plain = {str(row["id"]): _plain(next((row[n] for n in names if row[n] is not None), None)) for row in found}
        assert len(found) == len(plain)
        assert plain == expected


@pytest.mark.parametrize("full", [False, True])
def test_a_column_in_two_parts_is_no_key(shop: Shop, full: bool) -> None:
    """A column that got a variant before it was a key is refused, with what to do; loaded anew it is one column."""
    for n, (kind, value) in enumerate([(INTEGER, 7), (STRING, "x")]):
        shop.load("t", {"id": INTEGER, "k": kind}, [{"id": n, "k": value}], evolution=VARIANT)
    shop.layout = {"keys": ("k",)}
    before = rows(shop)
    again = {"id": INTEGER, "k": STRING}, [{"id": 2, "k": "x"}, {"id": 3, "k": "8"}]
    if full:
        shop.load("t", *again, evolution=Evolution("variant", keys=("k",)), mode="overwrite")
        assert rows(shop) == [{"id": 2, "k": "x"}, {"id": 3, "k": "8"}]
        return
    with pytest.raises(EngineError, match="a key is in two columns, as its type has changed key=k"):
        shop.load("t", *again, evolution=Evolution("variant", keys=("k",)))
    assert rows(shop) == before
