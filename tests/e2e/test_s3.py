"""A lake on S3 as a user has it: three runs into a real server over HTTP, and every verb on what they left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bridge import StateStore
from bridge.settings.values.stores import S3Options
from tests.e2e.conftest import stream
from tests.support.one_spark import OneSpark, printed_here, type_here
from tests.support.s3server import S3Server
from tests.support.shell import Typed, type_in

pytestmark = pytest.mark.timeout(900)  # three runs belong to the first test

SETTINGS = """\
pipelines:
  shop:
    source: {tap: tap-smoke, config: tap.json}
    destination: {bucket: "s3://e2e/team", s3: {endpoint_url: "${STORE}", storage_class: STANDARD_IA}}
"""


def tap_config(users: int, full: int) -> str:
    streams = [stream(records=users), stream("full", full, replication_method="FULL_TABLE")]
    return json.dumps({"seed": 1, "state": {"every": 100}, "streams": streams})


@dataclass
class Shop:
    """A project whose lake is on S3, and what its runs said."""

    folder: Path
    s3: S3Server
    runs: list[dict[str, Any]]

    @property
    def environ(self) -> dict[str, str]:
        """What a user has set; the server is said by the settings alone."""
        known = {key: value for key, value in os.environ.items() if key != "AWS_ENDPOINT_URL"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**known, "PATH": path, "STORE": self.s3.endpoint}

    def command(self, *arguments: str) -> str:
        argv = [sys.executable, "-m", "bridge", *arguments]
        done = subprocess.run(argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def set_tap(self, users: int, full: int) -> None:
        (self.folder / "tap.json").write_text(tap_config(users, full))

    def note(self, printed: str) -> None:
        """Keep what a run printed, with the tables after it."""
        self.runs.append(json.loads(printed) | {"tables": self.tables()})

    def run_here(self, *arguments: str) -> None:
        """A run in this process, on the one session."""
        with printed_here(stderr=False) as printed:
            assert type_here(["run", "--json", *arguments], self.folder, self.environ) == 0
        self.note(printed())

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket="e2e", Prefix=f"team/{prefix}")
        return [item["Key"].removeprefix("team/") for page in pages for item in page.get("Contents", [])]

    def object(self, key: str) -> bytes:
        return bytes(self.s3.client().get_object(Bucket="e2e", Key=f"team/{key}")["Body"].read())

    def tables(self) -> dict[str, list[int]]:
        """The ids in each table, as another engine reads what is in the bucket."""
        found: dict[str, list[int]] = {}
        for table in ("users", "full"):
            copy = self.folder / f"copy-{len(self.runs)}" / table
            copy.mkdir(parents=True)
            for key in self.keys(f"shop/{table}/"):
                (copy / key.rsplit("/", 1)[1]).write_bytes(self.object(key))
            found[table] = [row[0] for row in duckdb.sql(f"select id from '{copy}/*.parquet' order by id").fetchall()]
        return found


@pytest.fixture(scope="module")
def shop(s3_server: S3Server, one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A lake after a run, a second that resumes and overwrites, and a third that is full.

    The first is a process whose executors, too, know the server by the settings alone.
    """
    s3_server.clear()
    s3_server.bucket("e2e")
    shop = Shop(tmp_path_factory.mktemp("shop"), s3_server, [])
    (shop.folder / "bridge.yaml").write_text(SETTINGS)
    shop.set_tap(300, 100)
    shop.command("discover")
    shop.note(shop.command("run", "--json"))
    with one_spark.lent():
        shop.set_tap(420, 40)
        shop.run_here()
        shop.set_tap(420, 50)
        shop.run_here("--full")
    return shop


@pytest.fixture
def typed(shop: Shop, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Type a command in the project."""
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for name in ("STORE", "PATH"):
        monkeypatch.setenv(name, shop.environ[name])
    monkeypatch.chdir(shop.folder)
    return type_in(capfd)


def test_rows_are_exact_after_each_run(shop: Shop) -> None:
    """Each record once over all runs; the full table is replaced; `--full` replaces both at one commit."""
    first, second, full = shop.runs
    assert [run["status"] for run in shop.runs] == ["success"] * 3
    assert first["tables"] == {"users": list(range(1, 301)), "full": list(range(1, 101))}
    assert second["tables"] == {"users": list(range(1, 421)), "full": list(range(1, 41))}
    assert full["tables"] == {"users": list(range(1, 421)), "full": list(range(1, 51))}
    assert (second["streams"]["users"]["records"], second["state_before"]) == (120, first["state"])
    assert second["streams"]["full"]["load_method"] == "overwrite"
    assert full["commits"] == 1


def test_everything_is_in_the_bucket(shop: Shop) -> None:
    """No folder of the machine is part of the lake, and no Parquet file hides below `.bridge`."""
    assert not list(shop.folder.glob("**/*.parquet.pending")) and not (shop.folder / "lake").exists()
    keys = shop.keys(".bridge/")
    assert not [key for key in keys if key.endswith(".parquet") or "/pending/" in key]
    assert ".bridge/lake.json" in keys
    assert json.loads(shop.object(".bridge/shop/state.json")) == shop.runs[-1]["state"]
    listed = shop.object(".bridge/tables/shop/users.manifest").decode().splitlines()
    assert sorted(listed) == sorted(f"s3://e2e/team/{key}" for key in shop.keys("shop/users/"))
    (one, *_) = shop.keys("shop/users/")
    head = shop.s3.client().head_object(Bucket="e2e", Key=f"team/{one}")
    assert head["StorageClass"] == "STANDARD_IA"
    assert "StorageClass" not in shop.s3.client().head_object(Bucket="e2e", Key="team/.bridge/lake.json")


def test_verbs_that_look(typed: Typed, shop: Shop) -> None:
    """Each says of the lake on S3 what it says of a folder."""

    def found(line: str) -> Any:
        done = typed(line)
        assert done.code == 0, done.err
        return json.loads(done.out)

    (status,) = found("status --json")
    assert (status["bucket"], status["status"], status["rows"]) == ("s3://e2e/team", "success", 470)
    assert [run["run_id"] for run in found("runs list --json")] == [run["run_id"] for run in reversed(shop.runs)]
    assert found("runs show --json")["status"] == "success"
    assert "tap-smoke" in typed("runs show").out
    logs = typed("runs show --logs")
    assert (logs.code, bool(logs.out)) == (0, True)
    assert {table["stream"]: table["rows"] for table in found("tables list --json")} == {"full": 50, "users": 420}
    assert found("tables show -s users --json")["columns"][0]["column"] == "id"
    newest = [json.loads(line)["id"] for line in typed("tables head -s users -n 3 --json").out.splitlines()]
    assert newest == [420, 419, 418]
    assert found("tables history -s users --json")[0]["commit"] == 1
    assert found("state get") == shop.runs[-1]["state"]
    assert {row["stream"] for row in found("state list --json")} >= {"users"}
    assert [step["commit"] for step in found("state history --json")] == [2, 1]  # the full run ended where it began
    data = found("config show --json")["pipelines"]["shop"]["destination"]
    assert data["s3"] == {"endpoint_url": shop.s3.endpoint, "storage_class": "STANDARD_IA"}
    assert typed("config check").code == 0
    assert found("run --dry-run --json")["bucket"] == "s3://e2e/team"
    assert found("doctor --no-spark --json")["status"] == "ok"


@pytest.mark.parametrize("dialect", ["polars", "pyarrow"])
@pytest.mark.parametrize("flags", ["", "--manifest"])
def test_code_that_reads_the_table(typed: Typed, dialect: str, flags: str) -> None:
    """What `tables ddl` prints reads the table from the server that the settings name."""
    found: dict[str, Any] = {}
    done = typed(f"tables ddl -s users --dialect {dialect} {flags}")
    exec(done.out, found)
    users = found["users"]
    rows = users.collect() if dialect == "polars" else users.to_table()
    assert sorted(rows["id"].to_list() if dialect == "polars" else rows["id"].to_pylist()) == list(range(1, 421))


def test_statements_name_the_server(typed: Typed, shop: Shop) -> None:
    """An engine that has to be told once where the server is, is told in a comment."""
    host = shop.s3.endpoint.removeprefix("http://")
    assert f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false" in typed("tables ddl -s users --dialect duckdb").out
    spark = typed("tables ddl -s users --dialect spark --manifest").out
    assert f"# and spark.hadoop.fs.s3a.endpoint={shop.s3.endpoint}" in spark
    assert "athena reads Amazon's own S3 only" in typed("tables ddl -s users --dialect athena").out


def test_verbs_that_change_the_state(typed: Typed, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`set`, `edit`, `clear` and the library write one commit each, and readers see it at once."""
    bookmark = {"replication_key": "id", "replication_key_value": 410}
    (shop.folder / "state.json").write_text(json.dumps({"bookmarks": {"users": bookmark}}))
    assert typed("state set state.json --yes").code == 0
    assert json.loads(typed("state get").out)["bookmarks"]["users"] == bookmark
    monkeypatch.setenv("EDITOR", "sed -i s/410/405/")
    assert typed("state edit --yes").code == 0
    store = StateStore("s3://e2e/team", "shop", s3=S3Options(endpoint_url=shop.s3.endpoint))
    assert store.get("users")["replication_key_value"] == 405
    version = store.set("users", bookmark)
    assert store.compare_and_swap(version, {"bookmarks": {"full": {}, "users": bookmark}}) == version + 1
    assert typed("state clear --yes").code == 0
    assert json.loads(shop.object(".bridge/shop/state.json")) == {"bookmarks": {}}
    newest = json.loads(typed("state history -n 3 --json").out)
    assert [step["kind"] for step in newest] == ["state"] * 3


def test_another_bucket_without_any_file(typed: Typed, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--to s3://...` goes by the AWS_* environment alone, however the address ends."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", shop.s3.endpoint)
    for address in ("s3://e2e/team", "s3://e2e/team/"):
        done = typed(f"status --to {address} --json")
        assert json.loads(done.out)[0]["bucket"] == "s3://e2e/team", done.err
    done = typed("status --to s3://e2e/elsewhere")
    assert (done.code, "there is no pipeline in this bucket" in done.err) == (2, True)


def test_keys_may_stand_in_dotenv(shop: Shop) -> None:
    """Credentials in `.env` beside the settings are found, also where the environment has none at all."""
    nothing = {key: value for key, value in shop.environ.items() if "ACCESS_KEY" not in key}
    argv = [sys.executable, "-m", "bridge", "status", "--json"]

    def status() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=shop.folder, env=nothing, capture_output=True, text=True, check=False)

    assert "there are no credentials" in status().stderr
    (shop.folder / ".env").write_text("AWS_ACCESS_KEY_ID=testing\nAWS_SECRET_ACCESS_KEY=very-secret-key\n")
    found = status()
    (shop.folder / ".env").unlink()
    assert (found.returncode, json.loads(found.stdout)[0]["status"]) == (0, "success")


# Errors: nothing of the tap may be started.


@pytest.fixture
def broken(
    s3: S3Server, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Typed]:
    """A project whose tap leaves a mark when it is started, also for `--discover`; there is none at the end."""
    (tmp_path / "tap").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "tap").chmod(0o755)
    (tmp_path / "bridge.yaml").write_text(
        "pipelines: {x: {source: {tap: ./tap, select: ['*']}, destination: {bucket: 's3://broken/team'}}}"
    )
    s3.bucket("broken")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.chdir(tmp_path)
    yield type_in(capfd)
    assert not (tmp_path / "started").exists()


def expect(typed: Typed, said: str, hint: str) -> None:
    """A run ends with exit code 3, what is wrong and what to do, in words and as JSON."""
    done = typed("run --json")
    error = json.loads(done.out)["error"]
    assert done.code == 3
    assert said in error["message"]
    assert hint in error["hint"]
    assert "very-secret-key" not in done.out + done.err


@pytest.mark.parametrize(
    ("match", "code", "status", "said", "hint"),
    [
        ("", "InvalidAccessKeyId", 403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("", "SignatureDoesNotMatch", 403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        ("", "ExpiredToken", 400, "", "expired"),
        ("", "AccessDenied", 403, "access denied to s3:GetObject", "allow s3:GetObject"),
        ("^PUT ", "AccessDenied", 403, "access denied to s3:PutObject", "allow s3:PutObject"),
    ],
)
def test_what_the_store_refuses(
    broken: Typed, s3: S3Server, match: str, code: str, status: int, said: str, hint: str
) -> None:
    """A wrong key, an expired token, a missing right by its name: said before the tap is started."""
    s3.fault("error", match, status=status, code=code, times=None)
    expect(broken, said, hint)


def test_a_bucket_that_is_not_there(broken: Typed, tmp_path: Path) -> None:
    """It is not made by itself: a slip of the pen must not become a lake."""
    text = (tmp_path / "bridge.yaml").read_text()
    (tmp_path / "bridge.yaml").write_text(text.replace("s3://broken", "s3://not-there"))
    expect(broken, "NoSuchBucket", "create the bucket")


def test_no_network(broken: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is named."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    expect(broken, f"127.0.0.1:{port}", "check the network")


def test_no_credentials(broken: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which variables to set is said."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    expect(broken, "there are no credentials", "AWS_SECRET_ACCESS_KEY")


def test_an_unknown_profile(broken: Typed, tmp_path: Path) -> None:
    """A profile that nobody made is named."""
    text = (tmp_path / "bridge.yaml").read_text()
    (tmp_path / "bridge.yaml").write_text(text.replace("/team'", "/team', s3: {profile: nobody}"))
    expect(broken, "nobody", "profile")


def test_a_store_without_conditional_puts(broken: Typed, s3: S3Server) -> None:
    """Where two runs could both commit no run begins."""
    s3.fault("ignore_conditions", "^PUT ", times=None)
    expect(broken, "does not keep two writers apart", "conditional puts")
