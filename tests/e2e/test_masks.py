"""Masks, as a user has them: whatever a tap sends and however a run dies, no masked value is on disk or in the lake.

A secret is planted in each kind of field. Afterwards every file of the lake and of the project is searched for it; the
tables are not compressed, so that their bytes can be searched, too.
"""

from __future__ import annotations

import gzip
import hmac
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import Project

KEY = "the key of this test, and of no other"
NUMBER = 99887766554
MASKS = {
    "*.email": "hash",
    "people.phone": "redact",
    "*.iban": "last4",
    "*.note": "drop",
    "*.birth": "year",
    "people.card": "redact",
}
TEXT = {"type": ["null", "string"]}
SCHEMA = {
    "type": "SCHEMA",
    "stream": "people",
    "key_properties": ["id"],
    "schema": {
        "properties": {
            "id": {"type": "integer"},
            "email": TEXT,
            "phone": TEXT,
            "iban": TEXT,
            "note": TEXT,
            "birth": {"type": ["null", "string"], "format": "date"},
            "card": {"type": ["null", "integer"]},
            "contact": {"type": ["null", "object"], "properties": {"email": TEXT, "city": TEXT}},
            "work": {"type": ["null", "array"], "items": {"type": "object", "properties": {"email": TEXT}}},
            "any": {},
        }
    },
}
TAP = """
import os, sys, time
if '--discover' in sys.argv:
    sys.exit(sys.stdout.write(open({file!r} + '.catalog').read()) and 0)
for line in open({file!r}, 'rb'):
    if line == b'EXIT\\n':
        sys.exit(1)
    sys.stdout.buffer.write(line)
    if b'"STATE"' in line:
        sys.stdout.buffer.flush()
        time.sleep({pause})
"""


def code(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


def person(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "email": f"SECRET{number}@x.de",
        "phone": f"SECRET{number}",
        "iban": f"DESECRET{number:08d}",
        "note": "SECRET",
        "birth": "1984-05-02",
        "card": NUMBER,
        "contact": {"email": f"SECRET{number}@x.de", "city": "Ulm"},
        "work": [{"email": "SECRET"}],
        "any": {"deep": [{"email": "SECRET", "note": ["SECRET"]}]},
        "outside": {"email": "SECRET"},
    }


def stored(number: int) -> tuple[Any, ...]:
    hashed = code(f"SECRET{number}@x.de")
    return number, hashed, "***", f"***{number:04d}", 1984, "***", hashed, code("SECRET")


ROWS = """
SELECT id, email, phone, iban, birth, card, contact.email, work[1].email FROM read_parquet('{}/*.parquet') ORDER BY id
"""


def state(number: int) -> dict[str, Any]:
    mark = {"replication_key": "id", "replication_key_value": number}
    return {"type": "STATE", "value": {"bookmarks": {"people": mark}}}


def record(row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "people", "record": row}


def nasty() -> list[Any]:
    """What no tap should send: each line has a secret, and none is a row."""
    return [
        "SECRET is what I log",
        '{"type": "RECORD", "stream": "people", "record": {"id": 1, "email": "SECRET"',
        '{"type": "RECORD", "stream": "people", "record": "SECRET"}',
        b'{"type": "RECORD", "stream": "people", "record": {"id": 1, "email": "SECRET\xff"}}',
        '{"type": "RECORD", "record": {"id": 1, "email": "SECRET"}}',
        record(person(1) | {"id": "no number"}),
        record(
            person(1) | {"id": None, "email": {"SECRET": "SECRET"}, "birth": "SECRET", "iban": ["SECRETSECRETNONE"]}
        ),
        {"type": "UNKNOWN", "stream": "people", "value": "SECRET"},
        {**record({"id": "no", "email": "SECRET"}), "before": {"email": "SECRET"}},
        '{"type": "RECORD", "stream": "people", "record": {"id": "no", "\\u0065mail": "SECRET", "EMAIL": "SECRET"}}',
    ]


class People:
    """A pipeline of one stream, whose tap prints what is given."""

    def __init__(self, project: Project, folder: Path, **settings: Any) -> None:
        self.project, self._file = project, folder / "sent"
        project.environ["MASK_KEY"] = KEY
        self.settings = {"mask": MASKS, "mask_key": "${MASK_KEY}", **settings}
        self.write()

    def write(self, pause: float = 0, **settings: Any) -> None:
        self.settings |= settings
        tap = [sys.executable, "-c", TAP.format(file=str(self._file), pause=pause)]
        to = {"bucket": "lake", "compression": "none", "load_method": "upsert"}
        whole = {"source": {"tap": tap}, "destination": to, **self.settings}
        (self.project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": whole}}))

    def sends(self, *messages: Any) -> None:
        lines = [
            m if isinstance(m, bytes) else m.encode() if isinstance(m, str) else json.dumps(m).encode()
            for m in messages
        ]
        self._file.write_bytes(b"\n".join(lines) + b"\n")

    def discovers(self) -> None:
        """Let the tap have a catalog."""
        facts = {"selected": True, "table-key-properties": ["id"], "replication-method": "INCREMENTAL"}
        entry = {"tap_stream_id": "people", "stream": "people", "schema": SCHEMA["schema"]}
        entry["metadata"] = [{"breadcrumb": [], "metadata": {**facts, "replication-key": "changed"}}]
        self._file.with_name("sent.catalog").write_text(json.dumps({"streams": [entry]}))

    def rows(self) -> list[tuple[Any, ...]]:
        return duckdb.sql(ROWS.format(self.project.lake / "shop/people")).fetchall()

    def leaks(self) -> list[str]:
        """The files of the project with a secret: tables, rejects, logs, records, spool, whatever there is."""
        folder = self.project.folder
        secrets = (b"SECRET", str(NUMBER).encode(), NUMBER.to_bytes(8, "little"), KEY.encode())
        texts = {}
        for path in (Path(at, name) for at, _, names in os.walk(folder) for name in names):
            with suppress(OSError):  # gone meanwhile
                texts[path] = path.read_bytes()
        inner = {path: _unpacked(text) for path, text in texts.items()}
        return [str(path) for path, text in inner.items() if any(secret in text for secret in secrets)]


def _unpacked(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


@pytest.fixture
def people(project: Project, tmp_path_factory: pytest.TempPathFactory) -> People:
    return People(project, tmp_path_factory.mktemp("source"))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("small", ["8MiB", "0"])
def test_nothing_of_a_masked_value_is_kept(people: People, small: str) -> None:
    """Rows, rejects and lines that are no messages; the run's own process writes them, or Spark does."""
    people.write(spark={"small": small})
    people.sends(SCHEMA, *(record(person(n)) for n in range(1, 6)), *nasty(), state(5))
    done = people.project.command("run", "--json")
    result = json.loads(done.out)
    assert (done.code, result["streams"]["people"]["rejected"]) == (0, 7), done.err
    assert people.rows() == [stored(n) for n in range(1, 6)]
    assert people.leaks() == []
    assert "SECRET" not in done.out + done.err
    assert any("people: 1 value(s) of birth have no year" in text for text in result["warnings"])
    shown = people.project.command("rejects", "show", "shop").out
    assert "cannot be read" in shown
    assert "SECRET" not in shown
    query = f"SELECT DISTINCT _sdc_extra FROM read_parquet('{people.project.lake}/shop/people/*')"
    ((extra,),) = duckdb.sql(query).fetchall()
    assert json.loads(extra) == {"outside": {"email": code("SECRET")}}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("form", ["jsonl", "gzip", "records", "arrow", "parquet"])
def test_batches(people: People, form: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rows in files, in each form that a BATCH may have."""
    file = tmp_path_factory.mktemp("batch") / "rows"
    rows = [{key: value for key, value in person(n).items() if key != "any"} for n in range(1, 6)]
    if form in ("arrow", "parquet"):
        table = pa.Table.from_pylist(rows)
        if form == "arrow":
            with pa.ipc.new_file(str(file), table.schema) as writer:
                writer.write(table)
        else:
            pq.write_table(table, file)
    else:
        lines = [record(row) if form == "records" else row for row in rows]
        text = "\n".join(map(json.dumps, lines)).encode() + b"\n"
        file.write_bytes(gzip.compress(text) if form == "gzip" else text)
    encoding = {"format": form if form in ("arrow", "parquet") else "jsonl"}
    encoding |= {"compression": "gzip"} if form == "gzip" else {}
    people.sends(SCHEMA, {"type": "BATCH", "stream": "people", "encoding": encoding, "manifest": [str(file)]}, state(5))
    done = people.project.command("run", "--json")
    assert done.code == 0, done.err
    assert people.rows() == [stored(n) for n in range(1, 6)]
    assert people.leaks() == []


def _kill_runs(people: People, seed: int, kills: int) -> None:
    """Start runs and kill all of their processes, at any moment; then let one end."""
    lines: list[Any] = [SCHEMA]
    for n in range(1, 41):
        lines += [record(person(n)), *(nasty() if n % 10 == 0 else ()), state(n)]
    people.sends(*lines)
    people.write(pause=0.03, commit={"rows": 1})
    chance, argv = random.Random(seed), [sys.executable, "-m", "bridge", "run", "-q"]
    for _ in range(kills):
        run = subprocess.Popen(
            argv,
            cwd=people.project.folder,
            env=people.project.environ,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(0.3, 2.5))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)
        assert people.leaks() == []
    people.write()
    done = people.project.command("run", "--json")
    assert done.code == 0, done.err
    assert people.rows() == [stored(n) for n in range(1, 41)]
    assert people.leaks() == []


@pytest.mark.timeout(600)
def test_kills(people: People) -> None:
    """Spool, pending files, records of runs: whatever a killed run leaves."""
    _kill_runs(people, seed=1, kills=6)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_in_spark(people: People) -> None:
    """The same where Spark writes; many more of them."""
    people.write(spark={"small": "0"})
    _kill_runs(people, seed=int(os.environ.get("SEED", "2")), kills=int(os.environ.get("KILLS", "20")))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ({"people.id": "redact"}, "a key cannot be masked by redact"),
        ({"*.id": "drop"}, "a key cannot be masked by drop"),
        ({"people.changed": "hash"}, "a replication key cannot be masked"),
    ],
)
def test_a_mask_that_cannot_be(people: People, mask: dict[str, str], text: str) -> None:
    """Rows would fall together, or the STATE would show the value: nothing is stored."""
    schema = {**SCHEMA, "bookmark_properties": ["changed"]}
    schema["schema"] = {"properties": {"id": {"type": "integer"}, "changed": TEXT}}
    people.write(mask=mask)
    people.sends(schema, record({"id": 1, "changed": "SECRET"}), state(1))
    done = people.project.command("run")
    assert done.code == 2, done.err
    assert text in done.err
    assert "keep" in done.err
    assert people.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_a_state_with_a_masked_value(people: People) -> None:
    """As taps write it that resume by key: the run fails, and nothing of it is in the lake."""
    people.write(mask={"people.id": "hash", "people.email": "hash"})
    mark = {"last_pk_fetched": {"id": NUMBER}, "version": 1}
    people.sends(SCHEMA, record({"id": NUMBER}), {"type": "STATE", "value": {"bookmarks": {"people": mark}}})
    done = people.project.command("run")
    assert done.code == 1, done.err
    assert "the tap's STATE shows values of a masked field" in done.err
    assert people.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_a_hashed_key_and_another_mask_key(people: People) -> None:
    """Rows are merged by hashed keys. With another mask_key none would be found: such a run is refused."""
    people.write(mask={"people.id": "hash", "*.email": "hash"})
    people.discovers()
    people.sends(SCHEMA, *(record({"id": n, "email": "x"}) for n in (1, 2)), {"type": "STATE", "value": {}})
    assert people.project.command("run").code == 0
    people.sends(SCHEMA, *(record({"id": n, "email": "y"}) for n in (2, 3)), {"type": "STATE", "value": {}})
    assert people.project.command("run").code == 0
    query = f"SELECT id, email FROM read_parquet('{people.project.lake}/shop/people/*.parquet')"
    before = dict(duckdb.sql(query).fetchall())
    assert before == {code("1"): code("x"), code("2"): code("y"), code("3"): code("y")}

    people.project.environ["MASK_KEY"] = "another key, of sixteen and more"
    done = people.project.command("run")
    assert done.code == 2, done.err
    assert "the key is masked in another way than in the table" in done.err
    done = people.project.command("run", "-s", "people")
    assert done.code == 2
    assert "only some streams are to run" in done.err
    assert dict(duckdb.sql(query).fetchall()) == before
    done = people.project.command("run", "--full")
    assert done.code == 0, done.err
    assert len(duckdb.sql(query).fetchall()) == 2
    assert people.project.command("run").code == 0


@pytest.mark.usefixtures("in_process")
def test_a_key_that_is_masked_later(people: People) -> None:
    """Its rows have the raw key: to merge by the hash would double them. The same the other way round."""
    people.write(mask={"people.email": "redact"})
    people.sends(SCHEMA, record({"id": 1}), state(1))
    assert people.project.command("run").code == 0
    people.write(mask={"people.email": "redact", "people.id": "hash"})
    for _ in range(2):
        done = people.project.command("run")
        assert done.code == 2, done.err
        assert "set mask and mask_key back" in done.err
    people.sends(SCHEMA, record({"id": 1}), {"type": "STATE", "value": {}})
    assert people.project.command("run", "--full").code == 0
    people.write(mask={"people.email": "redact"})
    assert people.project.command("run").code == 2
    people.write(mask={"people.email": "redact", "people.id": "hash"})
    assert people.project.command("run").code == 0
    query = f"SELECT id FROM read_parquet('{people.project.lake}/shop/people/*.parquet')"
    assert duckdb.sql(query).fetchall() == [(code("1"),)]


@pytest.mark.usefixtures("in_process")
def test_another_mask_key_after_a_run_that_failed(people: People) -> None:
    """What the tables are hashed with counts, not what the last run that succeeded says."""
    people.write(mask={"people.id": "hash"}, commit={"rows": 1})

    def at(number: int) -> dict[str, Any]:
        return {"type": "STATE", "value": {"bookmarks": {"people": {"at": number}}}}

    people.sends(SCHEMA, record({"id": 1}), at(1), record({"id": 2}), at(2), "EXIT")
    assert people.project.command("run").code == 1
    query = f"SELECT id FROM read_parquet('{people.project.lake}/shop/people/*.parquet')"
    rows = duckdb.sql(query).fetchall()
    assert rows
    people.project.environ["MASK_KEY"] = "another key, of sixteen and more"
    people.sends(SCHEMA, record({"id": 1}), at(3))
    assert people.project.command("run").code == 2
    assert duckdb.sql(query).fetchall() == rows


STATES = [
    {"people": {"replication_key": "email", "replication_key_value": "SECRET"}},
    {"people": {"Email": "SECRET"}},
    {"people": {"last_pk_fetched": {"email": "SECRET"}}},
    {"people": {"partitions": [{"context": {"outside": "SECRET"}, "replication_key": "id"}]}},
    {"calls": {"partitions": [{"context": {"email": "SECRET"}}]}},
]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("marks", STATES)
def test_states_that_show_a_value(people: People, marks: dict[str, Any]) -> None:
    """A replication key that no SCHEMA names, another case, a context of a partition, also of a child stream."""
    people.write(mask={"people.email": "hash", "people.outside": "drop"})
    people.sends(
        SCHEMA, record({"id": 1, "email": "x", "outside": "y"}), {"type": "STATE", "value": {"bookmarks": marks}}
    )
    done = people.project.command("run")
    assert done.code == 1, done.out
    assert "the tap's STATE shows values of a masked field" in done.err
    assert people.leaks() == []
    assert "SECRET" not in done.err + done.out


@pytest.mark.usefixtures("in_process")
def test_masks_of_all_fields_do_not_mean_bookmarks(people: People) -> None:
    """`people.*` meets words of a STATE, too, which show nothing."""
    people.write(mask={"people.*": "redact", "people.id": "keep"})
    people.sends(SCHEMA, record(person(1)), state(1))
    assert people.project.command("run").code == 0
    assert people.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_other_lines_with_a_value(people: People) -> None:
    """A RECORD inside of a STATE's line, an unknown type, times and versions that are none."""
    begun = '{"type":"STATE","value":{"bookmarks":{"people":{"id":1}}}'
    broken = begun + '{"type":"RECORD","stream":"people","record":{"email":"SECRET"}}'
    people.sends(SCHEMA, record(person(1)), {"type": "SECRET", "stream": "people"}, broken)
    done = people.project.command("run")
    assert done.code == 1
    assert "the tap wrote a broken STATE" in done.err
    odd = {**record({"id": "no"}), "version": {"email": "SECRET"}, "time_extracted": "SECRET"}
    people.sends(SCHEMA, record(person(1)), {"type": "SECRET", "stream": "people"}, odd, state(1))
    again = people.project.command("run")
    assert again.code == 0
    assert "SECRET" not in done.err + done.out + again.err + again.out
    assert people.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_deep_records(people: People) -> None:
    """Nested as deep as a record may be without masks."""
    deep: dict[str, Any] = {"email": "SECRET"}
    for _ in range(800):
        deep = {"a": deep}
    people.sends(SCHEMA, record({"id": 1, "any": deep}), record(person(2)), state(2))
    assert people.project.command("run").code == 0
    assert len(people.rows()) == 2
    assert people.leaks() == []


@pytest.mark.usefixtures("in_process")
def test_the_whole_schema_is_checked_by_masked_values(people: People) -> None:
    """`rejects.validate: full`: rules for raw values reject nothing that is masked."""
    schema = {**SCHEMA, "schema": {**SCHEMA["schema"], "additionalProperties": {"type": "integer"}}}
    people.write(mask={"*.score": "hash", "people.email": "redact"}, rejects={"validate": "full"})
    people.sends(schema, record({"id": 1, "score": 5, "email": "x"}), state(1))
    result = json.loads(people.project.command("run", "--json").out)
    assert (result["status"], result["streams"]["people"]["rejected"]) == ("success", 0)


@pytest.mark.usefixtures("in_process")
def test_rejects_from_before_the_mask(people: People) -> None:
    """They are raw: a replay leaves them, and says why."""
    people.write(mask={}, mask_key=None)
    people.settings.pop("mask_key")
    whole = {"bucket": "lake", "compression": "none", "load_method": "append-only"}
    text = (people.project.folder / "bridge.yaml").read_text()
    people.sends(SCHEMA, record({"id": "7x", "email": "SECRET"}), record({"id": 1}), state(1))
    assert people.project.command("run").code == 0
    people.write(mask={"people.email": "redact"})
    settings = json.loads(text)
    settings["pipelines"]["shop"] |= {"destination": whole, "mask": {"people.email": "redact"}}
    (people.project.folder / "bridge.yaml").write_text(json.dumps(settings))
    properties = {**SCHEMA["schema"]["properties"], "id": {"type": ["string", "integer"]}}
    schema = {**SCHEMA, "schema": {"properties": properties}}
    people.sends(schema, record({"id": "8"}), state(2))
    done = people.project.command("run")
    assert done.code == 0, done.err
    replayed = people.project.command("rejects", "replay", "shop", "--yes")
    assert "of a run with other masks than now" in replayed.out
    query = f"SELECT email FROM read_parquet('{people.project.lake}/shop/people/*.parquet') WHERE email IS NOT NULL"
    assert duckdb.sql(query).fetchall() == []


@pytest.mark.usefixtures("in_process")
def test_masks_that_change_are_said(people: People) -> None:
    """Older rows stay as they are, and hashes of a new key are others; a misspelt field is no mask at all."""
    people.write(mask={"people.phone": "redact"})
    people.sends(SCHEMA, record({"id": 1, "email": "a"}), state(1))
    assert people.project.command("run").code == 0
    people.write(mask={"people.phone": "redact", "people.email": "hash", "people.emial": "drop"})
    people.sends(SCHEMA, record({"id": 2, "email": "a"}), state(2))
    warnings = json.loads(people.project.command("run", "--json").out)["warnings"]
    assert any(
        text.startswith("mask changed since the last successful run: people.email, people.emial") for text in warnings
    )
    assert any(text.startswith("mask: people.emial: no field of this run met it") for text in warnings)
    people.project.environ["MASK_KEY"] = "another key, of sixteen and more"
    people.sends(SCHEMA, record({"id": 3, "email": "a"}), state(3))
    warnings = json.loads(people.project.command("run", "--json").out)["warnings"]
    assert any(text.startswith("mask_key is another one") for text in warnings)
    warnings = json.loads(people.project.command("run", "--json").out)["warnings"]
    assert not any("mask_key" in text for text in warnings)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"mask_key": None}, "to hash needs a key"),
        ({"mask_key": "short"}, "must have at least 16 characters"),
        ({"mask": {"email": "hash"}}, "a field is named with its stream"),
        ({"mask": {"*.email": "hush"}}, "there are: hash, redact"),
        ({"mask": ["*.email"]}, "must be a mapping of fields to masks"),
    ],
)
def test_wrong_settings(people: People, settings: dict[str, Any], text: str) -> None:
    """`config check` says what is wrong, and shows no key."""
    people.write(**settings)
    done = people.project.command("config", "check")
    assert done.code == 2, done.out
    assert text in done.out + done.err
    assert KEY not in done.out + done.err


@pytest.mark.usefixtures("in_process")
def test_what_looks_at_a_lake_needs_no_key(people: People) -> None:
    """Only what reads the source does."""
    people.sends(SCHEMA, record(person(1)), state(1))
    assert people.project.command("run").code == 0
    del people.project.environ["MASK_KEY"]
    for words in (["status"], ["sql", "SELECT 1"], ["verify"], ["compact", "shop", "--dry-run"], ["tables"]):
        done = people.project.command(*words)
        assert done.code == 0, (words, done.err)
    assert people.project.command("run").code == 2


@pytest.mark.usefixtures("in_process")
def test_smoke_shows_no_value(people: People) -> None:
    """Its findings say where and what, without an example."""
    people.sends(SCHEMA, record({"id": "SECRET", "email": 3}), "SECRET", state(1))
    done = people.project.command("smoke", "shop", "--json")
    assert '"failed"' in done.out
    assert "SECRET" not in done.out + done.err


@pytest.mark.usefixtures("in_process")
def test_a_dry_run_shows_what_is_masked(people: People) -> None:
    """Of the catalog, nested fields, too."""
    people.discovers()
    people.sends(SCHEMA)
    masked = {"email": "hash", "phone": "redact", "iban": "last4", "note": "drop", "birth": "year", "card": "redact"}
    masked |= {"contact.email": "hash", "work.email": "hash"}
    assert people.project.command("discover", "shop").code == 0
    planned = people.project.command("run", "--dry-run", "--json").json
    assert planned["streams"][0]["masked"] == masked
    assert "masked in people: email (hash), phone (redact)" in people.project.command("run", "--dry-run").out


@pytest.mark.usefixtures("in_process")
def test_sql_sees_masked_values(people: People) -> None:
    """A transform and a view read what is stored."""
    transform = "SELECT id, email, upper(phone) AS phone, birth + 1 AS next FROM stream"
    views = {"by_year": "SELECT next, count(*) AS n, min(email) AS first FROM people GROUP BY next"}
    people.write(streams={"people": {"transform": transform}}, views=views)
    people.sends(SCHEMA, record(person(1)), state(1))
    done = people.project.command("run")
    assert done.code == 0, done.err
    assert people.leaks() == []
    rows = duckdb.sql(f"SELECT * FROM read_parquet('{people.project.lake}/shop/people/*.parquet')").fetchall()
    assert [row[:4] for row in rows] == [(1, code("SECRET1@x.de"), "***", 1985)]
    shown = people.project.command("sql", "SELECT next, n, first FROM by_year", "--json").out
    assert json.loads(shown) == {"next": 1985, "n": 1, "first": code("SECRET1@x.de")}
