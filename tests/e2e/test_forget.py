"""`forget`: a person goes out of everything that could bring them back, and everybody else stays.

Tables are not compressed, so that each file can be searched for a text that only the person's rows have.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.forget.forget import forget
from bridge.operate.verify.check import verify
from bridge.settings.load import load
from tests.e2e.conftest import Project
from tests.support.dying import die_at
from tests.support.s3server import S3Server

pytestmark = [pytest.mark.timeout(1200)]
MARK = b"PERSON42"
KEY = "the key of this test, and of no other"
TEXT = {"type": ["null", "string"]}
FORMATS = ["parquet", "delta", "iceberg"]


def schema(stream: str, keys: list[str], **columns: str) -> dict[str, Any]:
    properties = {name: {"type": ["null", kind]} for name, kind in columns.items()}
    return {"type": "SCHEMA", "stream": stream, "schema": {"properties": properties}, "key_properties": keys}


CUSTOMERS = schema("customers", ["id"], id="integer", name="string", age="integer")
ORDERS = schema("orders", [], oid="integer", customer_id="integer", note="string")


def record(stream: str, **row: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": row}


def customer(number: Any, more: str = "") -> dict[str, Any]:
    return record("customers", id=number, name=f"PERSON{number}{more}")


def order(number: int) -> dict[str, Any]:
    of = number % 50 or None
    return record("orders", oid=number, customer_id=of, note=f"for PERSON{of}")


def state(number: int) -> dict[str, Any]:
    marks = {name: {"replication_key": "at", "replication_key_value": number} for name in ("customers", "orders")}
    return {"type": "STATE", "value": {"bookmarks": marks}}


class Shop:
    """A project of one pipeline, `shop`, whose tap plays what it is told."""

    def __init__(self, project: Project, **settings: Any) -> None:
        self.project, self.lake = project, project.lake
        project.environ["MASK_KEY"] = KEY
        self.settings: dict[str, Any] = {
            "mask_key": "${MASK_KEY}",
            "forget": {"customers": {"orders": "customer_id"}},
            "streams": {"customers": {"load_method": "upsert"}, "orders": {"load_method": "append-only"}},
            **settings,
        }
        self.to: dict[str, Any] = {"bucket": "lake", "compression": "none"}
        self.write()

    def write(self, **settings: Any) -> None:
        self.settings |= settings
        source = {"tap": "tap-replay", "config": {"path": "tap.singer", "honour_state": False}}
        whole = {"source": source, "destination": self.to, **self.settings}
        (self.project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": whole}}))

    def play(self, *messages: Any, code: int = 0, words: tuple[str, ...] = ()) -> dict[str, Any]:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in messages]
        tap = self.project.folder / "tap.singer"
        tap.write_text("\n".join(lines) + "\n")
        done = self.command("run", "shop", "--json", *words)
        tap.unlink()
        assert done.code == code, done.err + done.out
        return dict(done.json)

    def command(self, *words: str) -> Any:
        return self.project.command(*words, timeout=300)

    def forget(self, *words: str, stream: str = "customers", code: int = 0) -> Any:
        done = self.command("forget", "shop", "-s", stream, *words, "--yes", "--json")
        assert done.code == code, done.err + done.out
        return done.err if code else json.loads(done.out)

    def rows(self, table: str, order: str) -> list[dict[str, Any]]:
        rows = bridge.Lake(str(self.lake)).table("shop", table).to_table().to_pylist()
        return sorted(rows, key=lambda row: str(row[order]))

    def leaks(self, mark: bytes = MARK) -> list[str]:
        """The files of the project with the person's text, but for logs of table formats about their past."""
        texts = {}
        for path in (Path(at, name) for at, _, names in os.walk(self.project.folder) for name in names):
            if "_delta_log" not in path.parts and "metadata" not in path.parts:
                with suppress(OSError):
                    texts[path] = path.read_bytes()
        return [str(path.relative_to(self.project.folder)) for path, text in texts.items() if mark in text]

    def load_all(self) -> None:
        """Rows, changed rows, rejects, removed files in the trash, small files that were joined, a rollback."""
        self.play(CUSTOMERS, ORDERS, *map(customer, range(1, 51)), *map(order, range(1, 120)), state(1))
        odd = [customer("x42"), record("customers", id=42, name="PERSON42", age="old"), customer([42])]
        damaged = '{"type": "RECORD", "stream": "customers", "record": {"id": 42, "name": "PERSON42"'
        changed = [customer(n, " changed") for n in range(30, 60)]
        self.play(CUSTOMERS, ORDERS, *changed, *odd, damaged, *map(order, range(120, 240)), state(2))
        assert self.command("compact", "shop", "--yes").code == 0
        self.play(CUSTOMERS, ORDERS, customer(42, " again"), *map(order, range(240, 300)), state(3))
        assert self.command("rollback", "2", "shop", "--yes").code == 0

    def others(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All rows but the person's."""
        return (
            [row for row in self.rows("customers", "id") if row["id"] != 42],
            [row for row in self.rows("orders", "oid") if row["customer_id"] != 42],
        )


@pytest.fixture
def shop(project: Project) -> Shop:
    return Shop(project)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_person_is_nowhere(shop: Shop, table_format: str) -> None:
    """After it no file has them, no rollback brings them back, all else is there; a run that does is told."""
    shop.to["format"] = table_format
    shop.write()
    shop.load_all()
    before = shop.others()
    assert MARK in b"".join(str(shop.rows(*each)).encode() for each in (("customers", "id"), ("orders", "oid")))
    dry = shop.command("forget", "shop", "-s", "customers", "--key", "42", "--dry-run", "--json")
    plan = json.loads(dry.out)
    assert (dry.code, plan["dry_run"], plan["tables"]["customers"]["rows"]) == (0, True, 1)
    assert shop.leaks()

    receipt = shop.forget("--key", "42")
    assert receipt["tables"]["orders"]["rows"] == 4
    assert receipt["rejects"] >= 2
    assert receipt["old_files"] > 3
    assert shop.leaks() == []
    assert shop.others() == before
    assert [row["id"] for row in shop.rows("customers", "id") if row["id"] == 42] == []
    assert shop.command("verify", "shop").code == 0
    assert shop.command("rollback", "1", "shop", "--yes").code != 0
    kept = json.loads((shop.lake / receipt["file"]).read_text())
    assert kept == {key: receipt[key] for key in kept}
    assert "PERSON" not in json.dumps(kept)
    assert len(kept["keys"][0]) == 64

    again = shop.forget("--key", "42")
    assert (again["tables"], again["rejects"], again["old_files"], again["commits"]) == ({}, 0, 0, [])
    assert again["keys"] == receipt["keys"]

    done = shop.play(CUSTOMERS, ORDERS, customer(42), customer(43), order(300), state(4))
    (told,) = [text for text in done["warnings"] if "forgotten" in text]
    assert told.startswith("customers: rows of 1 forgotten key(s) came again")
    assert "singer-bridge forget shop -s customers" in told
    shop.forget("--key", "42")
    assert shop.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_views(shop: Shop) -> None:
    """A view does not count the person, nor has a group for them; nor have windows that are closed."""
    properties = {**ORDERS["schema"]["properties"], "at": {"type": "string", "format": "date-time"}}
    orders = {**ORDERS, "schema": {"properties": properties}}
    by_hour = "SELECT customer_id, window(at, '1 hour').start AS hour, count(*) AS n, min(note) AS first "
    by_hour += "FROM orders GROUP BY customer_id, window(at, '1 hour').start"
    views: dict[str, Any] = {
        "per_customer": "SELECT customer_id, count(*) AS n, min(note) AS note FROM orders GROUP BY customer_id",
        "total": "SELECT 'all' AS scope, count(*) AS n, sum(n) AS of FROM per_customer GROUP BY 1",
        "by_hour": {"sql": by_hour, "lateness": "5m"},
    }
    shop.write(views=views)

    def at(number: int) -> dict[str, Any]:
        message = order(number)
        message["record"]["at"] = f"2026-01-{number // 24 + 1:02d}T{number % 24:02d}:00:00Z"
        return message

    shop.play(CUSTOMERS, orders, *map(customer, range(1, 51)), *map(at, range(1, 100)), state(1))
    shop.play(CUSTOMERS, orders, customer(42, " changed"), *map(at, range(100, 200)), state(2))
    assert any(row["customer_id"] == 42 for row in shop.rows("by_hour_closed", "hour"))
    others = [row for row in shop.rows("by_hour_closed", "hour") if row["customer_id"] != 42]
    shop.forget("--key", "42")
    assert shop.leaks() == []
    assert not any(row["customer_id"] == 42 for table in views if table != "total" for row in shop.rows(table, "n"))
    assert shop.rows("by_hour_closed", "hour") == others
    count = len(shop.rows("orders", "oid"))
    assert [(row["n"], row["of"]) for row in shop.rows("total", "scope")] == [(49, count)]
    assert shop.command("views", "verify", "shop").code == 0
    assert shop.command("verify", "shop").code == 0


def test_deaths(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Killed at each change of the bucket: there is no receipt before all is done, and the next call does it."""
    shop.load_all()
    before, made = shop.others(), tmp_path_factory.mktemp("made") / "lake"
    shutil.copytree(shop.lake, made)
    pipeline = load(shop.project.folder / "bridge.yaml", {"MASK_KEY": KEY}).pipelines["shop"]

    def work() -> Any:
        return forget(LocalStorage(shop.lake), pipeline, shop.project.folder / ".singer-bridge", "customers", ["42"])

    step, is_killed = 0, True
    while is_killed:
        shutil.rmtree(shop.lake)
        shutil.copytree(made, shop.lake)
        ended = die_at(shop.lake, step, work)
        assert not ended.failed, step
        receipts = list((shop.lake / ".bridge/shop/forgotten").glob("*.receipt.json"))
        if receipts or not ended.killed:
            assert shop.leaks() == [], step
        work()
        assert shop.leaks() == [], step
        assert shop.others() == before, step
        assert not [one for one in verify(LocalStorage(shop.lake), "shop").findings if one.status == "error"], step
        step, is_killed = step + 1, ended.killed
    assert step > 20


@pytest.mark.usefixtures("in_process")
def test_a_half_loaded_table(shop: Shop) -> None:
    """Its staged files have the person: the table starts again, and the files go."""
    shop.write(streams={"customers": {"load_method": "overwrite"}, "orders": {"load_method": "append-only"}})
    mark = {"type": "STATE", "value": {"bookmarks": {"customers": {"version": 7, "last": 42}}}}
    rows = [customer(n) | {"version": 7} for n in range(30, 50)]
    shop.play(CUSTOMERS, ORDERS, customer(1), order(1), state(1))
    broken = shop.project.folder / "broken.py"
    lines = [CUSTOMERS, *rows, mark]
    text = "\n".join(map(json.dumps, lines))
    broken.write_text(f"import sys\nprint({text!r}, flush=True)\nsys.exit(1)\n")
    whole = json.loads((shop.project.folder / "bridge.yaml").read_text())
    whole["pipelines"]["shop"]["source"] = {"tap": ["python", str(broken)]}
    whole["pipelines"]["shop"]["streams"]["customers"]["key_properties"] = ["id"]
    (shop.project.folder / "bridge.yaml").write_text(json.dumps(whole))
    assert shop.command("run", "shop").code != 0
    broken.unlink()
    assert [path for path in shop.leaks() if path.startswith("lake/")]
    receipt = shop.forget("--key", "42")
    assert receipt["staged"] == ["customers"]
    assert [path for path in shop.leaks() if path.startswith("lake/")] == []
    assert "customers" not in json.loads((shop.lake / ".bridge/shop/state.json").read_text())["bookmarks"]


@pytest.mark.usefixtures("in_process")
def test_keys_of_every_kind(shop: Shop) -> None:
    """Compound keys, texts, decimals, renamed and hashed columns; a key that is part of another stays."""
    people = schema("people", ["country", "number"], country="string", number="integer", name="string")
    visits = schema("visits", [], land="string", no="integer", what="string")
    money = schema("money", ["id"], id="number", what="string")
    mail = schema("mail", ["email"], email="string", what="string")
    shop.write(
        mask={"mail.email": "hash"},
        forget={"people": {"visits": ["land", "no"]}},
        streams={"people": {"rename": {"number": "no"}}},
        mask_key="${MASK_KEY}",
    )
    rows = [record("people", country=c, number=n, name=f"{c}{n}") for c in ("de", "fr", 'x"y') for n in (4, 42, 420)]
    rows += [record("visits", land="de", no=n, what=f"visit{n}") for n in (4, 42, 420)]
    rows += [record("money", id=n, what=f"money{n}") for n in (42, 42.5, 4.25)]
    rows += [record("mail", email=f"{n}@x.de", what=f"mail{n}") for n in ("a", "b")]
    shop.play(people, visits, money, mail, *rows, {"type": "STATE", "value": {}})
    assert "has 2 columns" in shop.forget("--key", "42", stream="people", code=2)
    assert shop.forget("--key", '["de", 42]', stream="people")["tables"] == {
        "people": {"rows": 1, "files": 1},
        "visits": {"rows": 1, "files": 1},
    }
    shop.forget("--key", '["x\\"y", 4]', stream="people")
    assert sorted(row["name"] for row in shop.rows("people", "name")) == sorted(
        {row["record"]["name"] for row in rows[:9]} - {"de42", 'x"y4'}
    )
    assert [row["what"] for row in shop.rows("visits", "no")] == ["visit4", "visit420"]
    shop.forget("--key", "42.5", "--key", "4.250", stream="money")
    assert [row["what"] for row in shop.rows("money", "id")] == ["money42"]
    (shop.project.folder / "keys").write_text("a@x.de\n\nc@x.de\n")
    receipt = shop.forget("--key-file", "keys", stream="mail")
    assert (len(receipt["keys"]), receipt["tables"]["mail"]["rows"]) == (2, 1)
    assert [row["what"] for row in shop.rows("mail", "what")] == ["mailb"]


@pytest.mark.usefixtures("in_process")
def test_all_pipelines(shop: Shop) -> None:
    """`--all`: the pipelines that have the stream, or one that is related to it; others are left alone."""
    shop.play(CUSTOMERS, ORDERS, *map(customer, range(40, 45)), *map(order, range(1, 60)), state(1))
    file = shop.project.folder / "bridge.yaml"
    whole = json.loads(file.read_text())
    other = json.loads(json.dumps(whole["pipelines"]["shop"]))
    other["source"]["config"]["path"] = "other.singer"
    whole["pipelines"] |= {"web": other, "empty": {**other, "forget": {}}}
    file.write_text(json.dumps(whole))
    (shop.project.folder / "other.singer").write_text(
        "\n".join(map(json.dumps, [ORDERS, order(42), order(43), state(1)]))
    )
    for name in ("web", "empty"):
        assert shop.command("run", name).code == 0
    (shop.project.folder / "other.singer").unlink()
    done = shop.command("forget", "--all", "-s", "customers", "--key", "42", "--yes", "--json")
    assert done.code == 0, done.err
    receipts = {one["pipeline"]: one for one in json.loads(done.out)}
    assert set(receipts) == {"shop", "web"}
    assert receipts["web"]["tables"] == {"orders": {"rows": 1, "files": 1}}
    assert [path for path in shop.leaks() if not path.startswith(("lake/empty/", "lake/.bridge/empty"))] == []


@pytest.mark.usefixtures("in_process")
def test_what_is_refused(shop: Shop) -> None:
    """Nothing is changed, and the message says what to do."""
    shop.play(CUSTOMERS, ORDERS, customer(42), order(42), state(1))
    head = bridge.Lake(str(shop.lake)).commit("shop")
    assert "no such table" in shop.forget("--key", "1", stream="costumers", code=2)
    assert "did you mean" in shop.forget("--key", "1", stream="costumers", code=2)
    assert "the stream has no key" in shop.forget("--key", "1", stream="orders", code=2)
    assert "no key is given" in shop.forget(code=2)
    assert "--key-file cannot be read" in shop.forget("--key-file", "nowhere", code=2)
    shop.write(forget={"customers": {"orders": "costumer_id"}})
    assert 'did you mean "customer_id"' in shop.forget("--key", "1", code=2)
    assert "a key is empty" in shop.forget("--key", " ", code=2)
    shop.write(forget={"customers": {"orders": "customer_id"}})
    assert "the column cannot have such a value" in shop.forget("--key", "forty-two", code=2)
    shop.write(forget={"customers": {"orders": "customer_id"}}, mask={"orders.customer_id": "redact"})
    assert "a column that redact masks" in shop.forget("--key", "1", code=2)
    shop.write(mask={}, mask_key=None)
    assert "to forget needs mask_key" in shop.forget("--key", "1", code=2)
    shop.write(forget={"customers": "orders"}, mask_key="${MASK_KEY}")
    assert "must be a mapping of streams to mappings" in shop.forget("--key", "1", code=2)
    shop.write(forget={})
    assert shop.command("forget", "shop", "-s", "customers", "--key", "42").code == 2
    assert bridge.Lake(str(shop.lake)).commit("shop") == head
    assert shop.leaks()


@pytest.mark.usefixtures("in_process")
def test_a_key_that_had_another_name(shop: Shop) -> None:
    """Older files have the key under that name: what cannot be searched goes, so that no rollback brings it back."""
    shop.play(CUSTOMERS, *map(customer, range(40, 45)), state(1))
    shop.write(streams={"customers": {"load_method": "upsert", "rename": {"id": "nr"}}}, forget={})
    shop.play(CUSTOMERS, *map(customer, range(40, 45)), state(2), words=("--full",))
    shop.forget("--key", "42")
    assert shop.leaks() == []
    assert shop.command("rollback", "1", "shop", "--yes").code != 0
    assert len(shop.rows("customers", "nr")) == 4


@pytest.mark.usefixtures("in_process")
def test_values_that_were_hashed_in_another_way(shop: Shop) -> None:
    """Rows would not be found: refused, until all is hashed anew; then what older files have goes, too."""
    shop.write(mask={"customers.id": "hash"}, forget={}, streams={"customers": {"load_method": "upsert"}})
    shop.play(CUSTOMERS, *map(customer, range(40, 45)), state(1))
    shop.project.environ["MASK_KEY"] = "another key, of sixteen and more"
    assert "hashed in another way" in shop.forget("--key", "42", code=2)
    shop.project.environ["MASK_KEY"] = KEY
    shop.write(mask={})
    assert "hashed in another way" in shop.forget("--key", "42", code=2)
    shop.project.environ["MASK_KEY"] = "another key, of sixteen and more"
    shop.write(mask={"customers.id": "hash"})
    shop.play(CUSTOMERS, *map(customer, range(40, 45)), state(2), words=("--full",))
    shop.forget("--key", "42")
    assert shop.leaks() == []
    assert shop.command("rollback", "1", "shop", "--yes").code != 0


@pytest.mark.usefixtures("in_process")
def test_relations_of_several_columns_and_to_itself(shop: Shop) -> None:
    """A list is of columns that have the key each; one of the stream itself does not take the place of its key."""
    people = schema("emp", ["id"], id="integer", boss="integer", name="string")
    deals = schema("deals", [], n="integer", buyer="integer", seller="integer")
    shop.write(
        forget={"emp": {"emp": "boss", "deals": ["buyer", "seller"]}}, streams={"emp": {"load_method": "upsert"}}
    )
    rows = [record("emp", id=42, boss=1, name="PERSON42"), record("emp", id=7, boss=42, name="of 42")]
    rows += [record("emp", id=8, boss=7, name="stays")]
    rows += [record("deals", n=n, buyer=b, seller=s) for n, b, s in ((1, 42, 1), (2, 1, 42), (3, 1, 2), (4, None, 7))]
    shop.play(people, deals, *rows, state(1))
    receipt = shop.forget("--key", "42", stream="emp")
    assert receipt["streams"] == ["deals", "emp"]
    assert [row["id"] for row in shop.rows("emp", "id")] == [8]
    assert [row["n"] for row in shop.rows("deals", "n")] == [3, 4]


@pytest.mark.usefixtures("in_process")
def test_rejects_of_others_stay(shop: Shop) -> None:
    """Also those that no commit counts any more, as they were replayed: a rollback needs them."""
    products = schema("products", ["id"], id="integer", age="integer", name="string")
    later = schema("products", ["id"], id="integer", age="string", name="string")
    shop.write(streams={"customers": {"load_method": "upsert"}, "products": {"load_method": "append-only"}}, forget={})
    odd = [record("products", id=n, age="bad", name="x") for n in (42, 43)]
    shop.play(CUSTOMERS, products, customer(1), record("products", id=1, age=1, name="x"), *odd, state(1))
    shop.play(CUSTOMERS, later, customer(42), record("products", id=2, age="1", name="x"), state(2))
    assert shop.command("rejects", "replay", "shop", "-s", "products", "--yes").code == 0
    files = sorted((shop.lake / ".bridge/shop/rejects/products").iterdir())
    before = [file.read_bytes() for file in files]
    assert before
    receipt = shop.forget("--key", "42")
    assert (receipt["rejects"], receipt["tables"]["customers"]["rows"]) == (0, 1)
    assert [file.read_bytes() for file in files] == before


@pytest.mark.usefixtures("in_process")
def test_lines_that_cannot_be_read(shop: Shop) -> None:
    """They are searched for the words of a key, however JSON escapes them."""
    mail = schema("mail", ["k"], k="string", what="string")
    shop.write(streams={"mail": {"load_method": "upsert"}}, forget={})
    names = ["Müller", 'x"y', "O'Brien", "a b", "nobody"]
    lines = [json.dumps(record("mail", k=name, what="PERSON42"))[:-2] for name in names]
    lines += [json.dumps(record("mail", k=names[0], what="PERSON42"), ensure_ascii=False)[:-2]]
    shop.play(mail, record("mail", k="y", what="z"), *lines, {"type": "STATE", "value": {}})
    keys = [word for name in names[:4] for word in ("--key", name)]
    assert shop.forget(*keys, stream="mail")["rejects"] == 5
    shown = shop.command("rejects", "show", "shop", "--json").out
    assert [name for name in ("ller", "Brien", "a b", "nobody") if name in shown] == ["nobody"]


@pytest.mark.usefixtures("in_process")
def test_columns_of_several_types(shop: Shop) -> None:
    """A column with a variant beside it, and keys that are written in another way than the source does."""
    first, then = (schema("o", [], xid=kind, w="string") for kind in ("integer", "string"))
    x = schema("x", ["id"], id="number", at="string")
    shop.write(
        forget={"x": {"o": "xid"}},
        streams={"o": {"load_method": "append-only", "on_type_change": "variant"}, "x": {"load_method": "upsert"}},
    )
    shop.play(
        first, x, record("o", xid=42, w="PERSON42"), record("x", id=42.50, at="a"), record("x", id=42, at="b"), state(1)
    )
    shop.play(then, x, record("o", xid="42", w="PERSON42"), record("o", xid="43", w="other"), state(2))
    shop.forget("--key", "42", stream="x")
    assert [row["w"] for row in shop.rows("o", "w")] == ["other"]
    assert shop.leaks() == []
    shop.forget("--key", "42.50", stream="x")
    assert shop.rows("x", "id") == []
    done = shop.play(then, x, record("x", id=42.5, at="a"), record("x", id=42, at="b"), state(3))
    assert [text for text in done["warnings"] if text.startswith("x: rows of 2 forgotten key(s) came again")]


@pytest.mark.usefixtures("in_process")
def test_a_table_that_was_never_whole(shop: Shop) -> None:
    """Its first load died half way: there are staged files, and no table yet."""
    shop.write(
        streams={
            "customers": {"load_method": "overwrite", "key_properties": ["id"]},
            "orders": {"load_method": "append-only"},
        }
    )
    shop.play(ORDERS, order(1), order(42), state(1))
    mark = {"type": "STATE", "value": {"bookmarks": {"customers": {"version": 7, "last": 42}}}}
    text = "\n".join(map(json.dumps, [CUSTOMERS, *(customer(n) | {"version": 7} for n in range(30, 50)), mark]))
    broken = shop.project.folder / "broken.py"
    broken.write_text(f"import sys\nprint({text!r}, flush=True)\nsys.exit(1)\n")
    whole = json.loads((shop.project.folder / "bridge.yaml").read_text())
    whole["pipelines"]["shop"]["source"] = {"tap": ["python", str(broken)]}
    (shop.project.folder / "bridge.yaml").write_text(json.dumps(whole))
    assert shop.command("run", "shop").code != 0
    broken.unlink()
    assert shop.leaks()
    receipt = shop.forget("--key", "42")
    assert (receipt["staged"], receipt["tables"]["orders"]["rows"]) == (["customers"], 1)
    assert shop.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_damaged_files(shop: Shop) -> None:
    """A removed file that nobody can read goes; a list of forgotten keys that nobody can read is no empty one."""
    shop.play(CUSTOMERS, ORDERS, *map(customer, range(40, 45)), state(1))
    shop.play(CUSTOMERS, ORDERS, customer(42, " changed"), state(2))
    (trash, *_) = [file for file in (shop.lake / ".bridge/shop/trash").rglob("*.removed") if "customers" in str(file)]
    trash.write_bytes(trash.read_bytes()[:-20])
    shop.forget("--key", "42")
    assert shop.leaks() == []
    (shop.lake / ".bridge/shop/forgotten/customers.json").write_text("[1")
    assert "cannot be read" in shop.forget("--key", "43", code=3)
    done = shop.play(CUSTOMERS, ORDERS, customer(42), state(3))
    assert any("whether forgotten keys came again is not known" in text for text in done["warnings"])


@pytest.mark.usefixtures("in_process")
def test_what_was_not_searched_is_said(shop: Shop) -> None:
    """Windows that are closed and do not name the key, views that left the settings, relations that lead nowhere."""
    by_hour = "SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY 1"
    views: dict[str, Any] = {
        "by_hour": {"sql": by_hour, "lateness": "5m"},
        "notes": "SELECT note, count(*) AS n FROM orders GROUP BY note",
    }
    properties = {**ORDERS["schema"]["properties"], "at": {"type": "string", "format": "date-time"}}
    orders = {**ORDERS, "schema": {"properties": properties}}

    def at(number: int) -> dict[str, Any]:
        message = order(number)
        message["record"]["at"] = f"2026-01-{number // 24 + 1:02d}T{number % 24:02d}:00:00Z"
        return message

    shop.write(views=views, forget={"customers": {"orders": "customer_id", "ordrs": "customer_id"}})
    shop.play(CUSTOMERS, orders, customer(42), *map(at, range(1, 100)), state(1))
    shop.write(views={"by_hour": views["by_hour"]})
    left = " ".join(shop.forget("--key", "42")["not_searched"])
    assert "by_hour_closed: its windows are closed" in left
    assert "notes: its view is not in the settings any more" in left
    assert "customers.ordrs of the settings' forget: there is no such table" in left


@pytest.mark.usefixtures("in_process")
def test_a_null_is_no_key(shop: Shop) -> None:
    """Not the text either."""
    people = schema("people", ["c", "n"], c="string", n="string", w="string")
    shop.write(streams={"people": {"load_method": "append-only", "key_properties": ["c", "n"]}}, forget={})
    shop.play(people, record("people", c="de", n="null", w="text"), state(1))
    assert "a part of a key is null" in shop.forget("--key", '["de", null]', stream="people", code=2)
    shop.forget("--key", '["de", "null"]', stream="people")
    assert shop.rows("people", "w") == []


@pytest.mark.parametrize("table_format", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_a_bucket(shop: Shop, table_format: str) -> None:
    """The same where files are uploads until a commit, and a view reads them."""
    with S3Server() as s3:
        shop.project.environ |= s3.environ
        shop.to |= {"bucket": f"s3://{s3.bucket('lake')}/team", "format": table_format}
        shop.write(views={"per_customer": "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id"})
        shop.play(CUSTOMERS, ORDERS, *map(customer, range(1, 51)), *map(order, range(1, 120)), state(1))
        changed = [customer(n, " changed") for n in range(30, 60)]
        shop.play(CUSTOMERS, ORDERS, *changed, *map(order, range(120, 240)), state(2))
        client = s3.client()

        def leaks() -> list[str]:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket="lake")
            keys = [one["Key"] for page in pages for one in page.get("Contents", []) if "_delta_log" not in one["Key"]]
            return [key for key in keys if MARK in client.get_object(Bucket="lake", Key=key)["Body"].read()]

        assert leaks()
        receipt = shop.forget("--key", "42")
        rows = {name: facts["rows"] for name, facts in receipt["tables"].items()}
        assert rows == {"customers": 1, "orders": 4, "per_customer": 0}
        assert leaks() == []
        assert not client.list_multipart_uploads(Bucket="lake").get("Uploads")
        assert shop.command("verify", "shop").code == 0
        shown = shop.command("sql", "shop", "SELECT count(*) FROM customers", "--json").out
        assert list(json.loads(shown).values()) == [58]
        assert shop.command("views", "verify", "shop").code == 0
