"""Tables of a real bucket, made by the real decoder, ledger and committer, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from bridge.errors import LakeError
from bridge.exact_json import dumps
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.paths import folder_name
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.barriers import Barrier
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.task import write_bundle
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, from_singer, merge
from bridge.settings.destination import LoadMethod
from tests.support.lake import DEAD, Faulty, Lake, fail
from tests.support.load import accounting
from tests.support.shell import type_words

EVOLVE = Evolution()


class Shop:
    """The pipeline `shop` over a bucket; each `load` is a run that makes one commit.

    `layout` is what the `TableLayout`s of all streams say besides their folders.
    """

    run = "run"
    """The run of the next `load`."""

    def __init__(self, root: Path, bucket: Storage | None = None, **layout: Any) -> None:
        self.root = root / "lake"
        self.storage = bucket or LocalStorage(self.root)
        self.spool = root / "spool"
        SpoolFolder(self.spool).create()
        self.layout = layout
        self._head = 0
        self.rejects: list[dict[str, Any]] = []  # of the latest load

    def lose(self, stream: str, properties: dict[str, Any], records: list[dict[str, Any]], **facts: Any) -> None:
        """Commit records, die before they are published, and lose their files; the next run takes the commit back."""
        storage = Faulty(Lake(self.root), publish=fail)
        storage.armed = True
        with pytest.raises(LakeError, match="cannot reach the bucket"):
            self.load(stream, properties, records, storage=storage, **facts)
        for file in (self.root / ".bridge/shop/pending").iterdir():
            file.unlink()
        self._head = open_committer(self.storage, "shop", "next", last=DEAD).snapshot.n

    def load(
        self,
        stream: str,
        properties: dict[str, Any],
        records: list[dict[str, Any]],
        *,
        keys: tuple[str, ...] = (),
        mode: LoadMethod = "append-only",
        storage: Any = None,
        evolution: Evolution = EVOLVE,
        max_rejects: int = 0,
        before: tuple[dict[str, Any], list[dict[str, Any]]] | None = None,
        top: dict[str, Any] | None = None,
        version: int | None = None,
        activate: int | None = None,
        **layout: Any,
    ) -> dict[str, Any]:
        """Commit records of a stream, as a run does that follows a clean end, and return the commit's record.

        `layout` is what the stream's `TableLayout` says besides its folder, `before` what came under an earlier SCHEMA,
        `top` what a SCHEMA says besides its properties. The records are of a `version`; one is complete to `activate`.
        """
        committer = open_committer(storage or self.storage, "shop", self.run, last={"closed": self._head})
        table = committer.snapshot.tables.get(stream)
        kept = (
            read_schema(self.storage, "shop", table.schema) if table and table.schema and mode != "overwrite" else None
        )
        said = [*([before] if before else []), (properties, records)]
        folder = table.folder if table else f"shop/{self._folder(committer, stream)}"
        targets = {stream: TableLayout(folder, **(self.layout | layout))}
        job = WriteContext(self.storage.uri, "shop", "run", committer.generation, str(self.spool), "zstd", targets)
        ledger = accounting(committer, job, continued={}, max_rejects=max_rejects)
        schema, segments = TableSchema(pa.schema([])), []
        for columns, rows in said:
            schema = kept = merge(kept, from_singer({"properties": columns, **(top or {})}, list(keys)), evolution)
            segments += [self._segment(stream, schema, rows, version, len(segments))] if rows else []
        if segments:
            report = write_bundle(job, 1, segments)
            ledger.add(SealedBatch(1, [segments]), [report])
            self.rejects = [orjson.loads(line) for r in report.rejects for line in self._lines(r.file.file)]
        state = {"bookmarks": {"n": self._head + 1}}
        active = {} if activate is None else {stream: activate}
        barrier = Barrier(state, False, {stream: mode}, {}, {stream: schema}, True, active)
        record = ledger.commit(ledger.prepare(barrier, through=1))
        self._head = committer.snapshot.n
        assert record
        return record

    def _lines(self, key: str) -> list[bytes]:
        return (self.storage.read(key) or b"").splitlines()

    @staticmethod
    def _folder(committer: Committer, stream: str) -> str:
        return folder_name(stream, [table.folder.rsplit("/", 1)[-1] for table in committer.snapshot.tables.values()])

    def _segment(
        self, stream: str, schema: TableSchema, records: list[dict[str, Any]], version: int | None, order: int
    ) -> Segment:
        """Write the spool's file for these records."""
        said = {"type": "RECORD", "stream": stream} | ({} if version is None else {"version": version})
        lines = [dumps(said | {"record": record}) + b"\n" for record in records]
        spool = SpoolFolder(self.spool)
        spool.put_schema(schema.hash, schema.to_json())
        return spool.put_segment(stream, schema.hash, b"".join(lines), order=order)


def typing(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what types `singer-bridge tables ...` about the shop in a folder, and gives what that printed."""

    def type_in(*words: str, code: int = 0) -> str:
        exit_code, out, err = type_words(capsys, "tables", *words, "--to", str(root / "lake"), "--name", "shop")
        assert exit_code == code, out + err
        return out + err

    return type_in


INTEGER = {"type": ["null", "integer"]}
STRING = {"type": ["null", "string"]}
TWO_PIPELINES = """\
pipelines:
  shop:
    source: {tap: tap-x, config: {password: "${NOBODY_SET_THIS}"}}
    destination: {bucket: lake}
  other:
    source: {tap: tap-x}
    destination: {bucket: lake}
"""
"""bridge.yaml of a shop, and of a pipeline that never ran: a verb that only looks needs no secret."""
ODD = "a b\"c`d'e$f\\g;h,i.j:k(l){m}[n]*?%=ü\nz"
"""A name with a bit of everything that SQL, globs, URIs and Python read otherwise."""


def _struct(**fields: Any) -> dict[str, Any]:
    return {"type": ["null", "object"], "properties": {name.replace("_", " "): kind for name, kind in fields.items()}}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["null", "array"], "items": items}


WIDE = {
    "n": INTEGER,
    "at": {"type": ["null", "string"], "format": "date-time"},
    "day": {"type": ["null", "string"], "format": "date"},
    "place": _struct(x=INTEGER, y_z=STRING),
    "lines": _list(_struct(sku=STRING)),
    "payload": {},
    "price": {"type": ["null", "number"], "multipleOf": 0.01},
    "open": {"type": ["null", "boolean"]},
    "ratio": {"type": ["null", "number"]},
    "grid": _list(_list(INTEGER)),
}
WIDER = {
    "n": {"type": ["null", "integer"], "maximum": 10**30},
    "place": _struct(x=INTEGER, y_z=STRING, new=STRING),
    "lines": _list(_struct(sku=STRING, count=INTEGER)),
}


def filled(root: Path, **layout: Any) -> tuple[Shop, dict[str, list[dict[str, Any]]]]:
    """Return a bucket with tables that readers get wrong, and the rows that each of them holds."""
    shop = Shop(root, **layout)
    number = {"id": {"type": "integer"}}
    shop.load("orders", {**number, "name": STRING}, [{"id": 1, "name": "a"}, {"id": 2}], keys=("id",))
    shop.load("orders", {**number, "note": STRING}, [{"id": 3, "note": "new"}], keys=("id",))
    shop.load("Orders", {"id": INTEGER}, [{"id": 9}])
    at = "2024-01-01T00:00:00.123456Z"
    first = {"n": 1, "at": at, "day": "2024-02-29", "place": {"x": 1, "y z": "q"}, "lines": [{"sku": "s"}]}
    first |= {"payload": {"a": [1, None]}, "price": 1.25, "open": True, "ratio": 0.5, "grid": [[1], [2, 3]]}
    shop.load("wide", WIDE, [first])
    second = {"n": 10**25, "place": {"x": 2, "y z": "r", "new": "N"}, "lines": [{"sku": "t", "count": 5}]}
    shop.load("wide", WIDER, [second])
    odd = {ODD: 7, "ID": 1, "id": 2, "select": "s", " lead": "l", "été": "e", "日本": "j"}
    shop.load(ODD, {name: INTEGER if isinstance(value, int) else STRING for name, value in odd.items()}, [odd])
    shop.load("none", {"id": INTEGER, "place": _struct(x=INTEGER)}, [])
    rows = {
        "orders": [_row("id name note", 1, "a"), _row("id name note", 2), _row("id name note", 3, None, "new")],
        "Orders": [{"id": 9}],
        "wide": [_wide(first), _wide(second)],
        ODD: [{"id_2" if name == "id" else name: value for name, value in odd.items()}],
        "none": [],
    }
    return shop, rows


def _row(names: str, *values: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split()) | dict(zip(names.split(), values, strict=False))


def _wide(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as a reader of the newest schema sees it."""
    row = dict.fromkeys(WIDE) | record
    row["n"] = Decimal(row["n"])
    row["place"] = {"new": None} | row["place"]
    row["lines"] = [{"count": None} | line for line in row["lines"]]
    if "at" in record:
        row["at"] = datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=timezone.utc)
        row["day"], row["price"] = date(2024, 2, 29), Decimal("1.25")
        row["payload"] = '{"a":[1,null]}'
    return row
