"""`target-bridge` as a plugin of a real Meltano: what docs/target.md tells to type, and what a crash leaves behind."""

from __future__ import annotations

import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.operate.demo.database import DemoServer, private_postgres
from tests.e2e.meltano import ROOT, Meltano, built_wheel, installed_meltano
from tests.e2e.realtaps import adbc_tap, installed
from tests.test_docs import blocks, check_output

pytestmark = pytest.mark.timeout(1800)

PLUGIN = ROOT / "deploy/meltano/target-bridge.yml"
ENVIRONMENTS = ["dev", "killed", "staging", "prod", "full", "merged", "tap", "target", "append", "stopped"]
ENVIRONMENTS += ["postgres", "in-variables"]
TARGET = "target-bridge"
STORED = "Incremental state has been updated"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Meltano:
    """A project in which each command for Meltano in docs/target.md was typed, in order; it showed what it should."""
    programs = installed_meltano(tmp_path_factory.mktemp("meltano") / "venv")
    wheel = built_wheel(tmp_path_factory.mktemp("dist"))
    folder = tmp_path_factory.mktemp("shop")
    plugin = yaml.safe_load(PLUGIN.read_text())
    (folder / PLUGIN.name).write_text(yaml.safe_dump(plugin | {"pip_url": str(wheel)}))
    shop = Meltano(folder, programs)
    for block in blocks(ROOT / "docs/target.md"):
        if name := block.marks.get("file"):
            (folder / name).write_text(block.text)
        elif block.marks.get("skip", "").startswith("typed by"):
            for command, shown in block.commands():
                done = shop.install() if command == "meltano install" else shop.type(command)
                assert done.code == 0, f"$ {command}\n{done.out}{done.err}"
                check_output(command, shown, done.err + done.out)
    yield shop
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shop(typed: Meltano) -> Meltano:
    """The project with tap-smoke, twice, and an environment for each test; nothing of the document's settings."""
    plugins = yaml.safe_load((typed.folder / "meltano.yml").read_text())["plugins"]
    settings = [{"name": "streams", "kind": "array"}, {"name": "delay_ms", "kind": "integer"}]
    settings += [{"name": name, "kind": "object"} for name in ("state", "fail")] + [{"name": "fail_once_file"}]
    tap = typed.folder / ".meltano/loaders/target-bridge/venv/bin/tap-smoke"
    smoke = {"name": "tap-smoke", "namespace": "tap_smoke", "executable": str(tap), "settings": settings}
    smoke["capabilities"] = ["catalog", "discover", "state"]
    other = {"name": "tap-smoke--other", "inherit_from": "tap-smoke"}
    typed.edit(
        plugins={**plugins, "extractors": [*plugins["extractors"], smoke, other]},
        environments=[{"name": name} for name in ENVIRONMENTS],
    )
    (typed.folder / ".env").unlink()
    return typed


def numbers(count: int) -> list[tuple[int]]:
    """The rows of tap-smoke's stream."""
    return [(number,) for number in range(1, count + 1)]


def stream(records: int, name: str = "users", **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "records": records, **more}]


def kept(project: Meltano, lake: Path, pipeline: str) -> Any:
    """The STATE in the lake, as plain JSON."""
    assert (lake / ".bridge" / pipeline / "state.json").exists()
    return json.loads((lake / ".bridge" / pipeline / "state.json").read_text())


def test_what_the_document_shows_is_what_is_in_the_lake(typed: Meltano) -> None:
    """Two incremental runs by key: each row once, and Meltano and the lake have one STATE."""
    lake = typed.folder / "lake"
    assert typed.rows(lake / "tap_jsonl/orders", "id, item") == [(1, "pen"), (2, "ink"), (3, "nib")]
    assert typed.state("tap-jsonl") == kept(typed, lake, "dev.tap-jsonl")


@pytest.mark.slow
def test_meltano_killed_in_the_middle_of_a_run_leaves_each_row_once(shop: Meltano, tmp_path: Path) -> None:
    """The target commits on, its STATEs are never stored, and the tap sends those rows again."""
    lake = tmp_path / "lake"
    one = shop.having("killed", TARGET_BRIDGE_BUCKET=str(lake), TARGET_BRIDGE_BATCH_SIZE_ROWS=100)
    slow = one.having(TAP_SMOKE_STREAMS=stream(1500), TAP_SMOKE_STATE={"every": 50}, TAP_SMOKE_DELAY_MS=10)
    slow.killed(f"tap-smoke {TARGET}", STORED)
    stored = one.state("tap-smoke")
    assert stored
    assert stored != kept(one, lake, "killed.tap-smoke")
    one.having(TAP_SMOKE_STREAMS=stream(2000)).run(f"--force tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(2000)
    assert one.state("tap-smoke") == kept(one, lake, "killed.tap-smoke")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["tap", "target", "stopped"])
def test_whatever_ends_a_run_the_next_one_leaves_each_row_once(shop: Meltano, tmp_path: Path, what: str) -> None:
    """A tap that fails, a target that is killed, a Meltano told to stop: what is stored never leads the rows."""
    lake = tmp_path / "lake"
    one = shop.having(what, TARGET_BRIDGE_BUCKET=str(lake), TARGET_BRIDGE_BATCH_SIZE_ROWS=100)
    cut = one.having(TAP_SMOKE_STREAMS=stream(1500), TAP_SMOKE_STATE={"every": 50}, TAP_SMOKE_DELAY_MS=10)
    if what == "tap":
        said = cut.having(TAP_SMOKE_FAIL={"at": 775, "how": "exit"}).run(f"tap-smoke {TARGET}", code=1)
        assert "Extractor failed" in said
    else:
        code, said = cut.signalled(f"tap-smoke {TARGET}", STORED, what == "target")
        assert (code, "Loader failed" in said) == ((1, True) if what == "target" else (143, False))
    stored = one.state("tap-smoke")["bookmarks"]["users"]["replication_key_value"]
    assert stored % 50 == 0
    assert numbers(stored) == one.rows(lake / "tap_smoke/users")[:stored]
    one.having(TAP_SMOKE_STREAMS=stream(2000)).run(f"tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(2000)
    assert one.state("tap-smoke") == kept(one, lake, f"{what}.tap-smoke")


@pytest.mark.slow
def test_two_environments_and_two_taps_share_a_bucket(shop: Meltano, tmp_path: Path) -> None:
    """Each has a commit log and a state of its own; folders of tables are theirs by `path`."""
    lake = tmp_path / "lake"
    both = shop.having(TARGET_BRIDGE_BUCKET=str(lake), TAP_SMOKE_STREAMS=stream(10))
    staging = both.having("staging", TARGET_BRIDGE_PATH="staging/smoke")
    prod = both.having("prod", TAP_SMOKE__OTHER_STREAMS=stream(30))
    staging.run(f"tap-smoke {TARGET}")
    prod.run(f"tap-smoke {TARGET} tap-smoke--other {TARGET}")
    prod.having(TAP_SMOKE_STREAMS=stream(20)).run(f"tap-smoke {TARGET}")
    assert staging.rows(lake / "staging/smoke/users") == numbers(10)
    assert prod.rows(lake / "tap_smoke/users") == numbers(20)
    assert prod.rows(lake / "tap_smoke__other/users") == numbers(30)
    for project, tap, records in ((staging, "tap-smoke", 10), (prod, "tap-smoke", 20), (prod, "tap-smoke--other", 30)):
        state = kept(project, lake, f"{project.environment}.{tap}")
        assert project.state(tap) == state
        assert state["bookmarks"]["users"]["replication_key_value"] == records


@pytest.mark.slow
def test_a_second_environment_in_the_same_tables_is_refused(shop: Meltano, tmp_path: Path) -> None:
    """Two logs over one table would lose each other's rows: it says so, and what to set."""
    both = shop.having(TARGET_BRIDGE_BUCKET=str(tmp_path / "lake"), TAP_SMOKE_STREAMS=stream(10))
    both.having("staging").run(f"--full-refresh tap-smoke {TARGET}")
    said = both.having("prod").run(f"--full-refresh tap-smoke {TARGET}", code=1)
    assert "staging.tap-smoke" in said
    assert both.rows(tmp_path / "lake/tap_smoke/users") == numbers(10)


@pytest.mark.slow
def test_a_full_refresh_by_key_leaves_each_row_once(shop: Meltano, tmp_path: Path) -> None:
    """Everything is sent again and merged; the next run goes on from the merged state, which is the lake's too."""
    lake = tmp_path / "lake"
    one = shop.having("full", TARGET_BRIDGE_BUCKET=str(lake), TARGET_BRIDGE_LOAD_METHOD="upsert")
    for records, option in ((20, ""), (30, ""), (30, "--full-refresh"), (40, "")):
        one.having(TAP_SMOKE_STREAMS=stream(records)).run(f"{option} tap-smoke {TARGET}")
        assert one.rows(lake / "tap_smoke/users") == numbers(records)
        assert one.state("tap-smoke") == kept(one, lake, "full.tap-smoke")


@pytest.mark.slow
def test_a_full_refresh_that_appends_adds_all_rows_again(shop: Meltano, tmp_path: Path) -> None:
    """As asked for; and the log says it."""
    one = shop.having("append", TARGET_BRIDGE_BUCKET=str(tmp_path / "lake"))
    for records in (20, 30):
        one.having(TAP_SMOKE_STREAMS=stream(records)).run(f"tap-smoke {TARGET}")
    said = one.having(TAP_SMOKE_STREAMS=stream(30)).run(f"--full-refresh tap-smoke {TARGET}")
    assert "twice" in said
    assert one.rows(tmp_path / "lake/tap_smoke/users") == sorted(numbers(30) * 2)


@pytest.mark.slow
def test_states_that_are_merged_lose_nothing(shop: Meltano, tmp_path: Path) -> None:
    """`--state-strategy=merge`, with another stream the second time: both bookmarks are there, and all rows once."""
    lake = tmp_path / "lake"
    one = shop.having("merged", TARGET_BRIDGE_BUCKET=str(lake))
    for streams in (stream(20), stream(10, "orders"), [*stream(30), *stream(10, "orders")]):
        one.having(TAP_SMOKE_STREAMS=streams).run(f"--state-strategy=merge tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(30)
    assert one.rows(lake / "tap_smoke/orders") == numbers(10)
    assert one.state("tap-smoke") == kept(one, lake, "merged.tap-smoke")


@pytest.fixture
def postgres() -> Iterator[DemoServer]:
    # Not below pytest's own folder: as root the server is another user, whom each pytest that starts locks out there.
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


def by_records(postgres: DemoServer, files: Path) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """meltanolabs-tap-postgres: the plugin, the stream, and the variables of its settings."""
    tap = {"name": "tap-postgres", "namespace": "tap_postgres", "capabilities": ["catalog", "discover", "state"]}
    tap |= {"executable": str(installed("meltanolabs-tap-postgres", "tap-postgres"))}
    tap |= {"settings": [{"name": "sqlalchemy_url"}, {"name": "filter_schemas", "kind": "array"}]}
    url = postgres.url("postgres", user="postgres", password="none")
    return tap, "public-orders", {"TAP_POSTGRES_SQLALCHEMY_URL": url, "TAP_POSTGRES_FILTER_SCHEMAS": ["public"]}


def by_batches(postgres: DemoServer, files: Path) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The tap by ADBC, with Meltano's settings for BATCH."""
    tap = {"name": "tap-adbc", "namespace": "tap_adbc", "capabilities": ["catalog", "discover", "state", "batch"]}
    tap |= {"executable": str(adbc_tap(files))}
    names = ["uri", "batch_config.encoding.format", "batch_config.storage.root"]
    tap |= {"settings": [{"name": name} for name in names]}
    environ = {"TAP_ADBC_URI": postgres.conninfo("postgres"), "TAP_ADBC_BATCH_CONFIG_ENCODING_FORMAT": "arrow"}
    return tap, "orders", environ | {"TAP_ADBC_BATCH_CONFIG_STORAGE_ROOT": files.as_uri()}


def add_incremental(shop: Meltano, tap: dict[str, Any], stream: str) -> None:
    """Add a tap to the project that sends the stream by what changed."""
    method = {"replication-method": "INCREMENTAL", "replication-key": "updated_at"}
    tap |= {"select": [f"{stream}.*"], "metadata": {stream: method}}
    plugins = yaml.safe_load((shop.folder / "meltano.yml").read_text())["plugins"]
    shop.edit(plugins={**plugins, "extractors": [*plugins["extractors"], tap]})


@pytest.mark.slow
@pytest.mark.parametrize("sent", [by_records, by_batches])
def test_postgres_twice_by_what_changed(
    shop: Meltano, postgres: DemoServer, tmp_path: Path, sent: Callable[..., tuple[dict[str, Any], str, dict[str, Any]]]
) -> None:
    """Rows are the database's, also those that it changed between two runs, and both sides have one STATE."""
    psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
    tap, stream, environ = sent(postgres, tmp_path)
    add_incremental(shop, tap, stream)
    lake = tmp_path / "lake"
    one = shop.having("postgres", TARGET_BRIDGE_BUCKET=str(lake), TARGET_BRIDGE_LOAD_METHOD="upsert", **environ)
    changed = "update orders set price = -1, updated_at = '2024-03-01' where id % 7 = 0"
    with psycopg.connect(postgres.conninfo("postgres"), autocommit=True) as sql:
        sql.execute("drop table if exists orders")
        sql.execute("create table orders (id bigint primary key, item text, price float8, updated_at timestamptz)")
        for statements in ([_ORDERS.format(1, 100)], [_ORDERS.format(101, 150), changed]):
            for statement in statements:
                sql.execute(statement)
            one.run(f"{tap['name']} {TARGET}")
            columns = "id, item, price, extract(epoch from updated_at)::float8"
            wanted = sql.execute(f"select {columns} from orders order by id").fetchall()
            assert one.rows(lake / tap["namespace"] / stream, columns.replace("::float8", "")) == wanted
            said = one.type(f"singer-bridge state get --to {lake} --name postgres.{tap['name']}")
            assert one.state(tap["name"]) == json.loads(said.out)
    assert "2024-03-01" in said.out
    assert bool(list(tmp_path.glob("*.arrow"))) == (sent is by_batches)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["variables", "file"])
def test_versions_of_masked_rows(shop: Meltano, postgres: DemoServer, tmp_path: Path, place: str) -> None:
    """Each version that PostgreSQL had at a run, its text hashed: Meltano loses the dots of such settings."""
    psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
    tap, stream, environ = by_records(postgres, tmp_path)
    add_incremental(shop, tap, stream)
    lake, key = tmp_path / "lake", "0123456789abcdef0123456789abcdef"
    wishes: dict[str, Any] = {
        "mask": {"*.item": "hash"},
        "streams": {stream: {"load_method": "history", "sequence": "updated_at"}},
    }
    wishes["streams"]["no.such"] = {"load_method": "upsert"}
    one = shop.having(f"in-{place}", TARGET_BRIDGE_BUCKET=str(lake), TARGET_BRIDGE_MASK_KEY=key, **environ)
    if place == "variables":
        one = one.having(**{f"TARGET_BRIDGE_{name.upper()}": value for name, value in wishes.items()})
    else:
        own = {"plugins": {"loaders": [{"name": TARGET, "config": wishes}]}}
        shop.edit(environments=[*({"name": name} for name in ENVIRONMENTS), {"name": one.environment, "config": own}])
    changed = "update orders set price = -1, updated_at = '2024-03-01' where id % 7 = 0"
    with psycopg.connect(postgres.conninfo("postgres"), autocommit=True) as sql:
        sql.execute("create table orders (id bigint primary key, item text, price float8, updated_at timestamptz)")
        seen: set[tuple[Any, ...]] = set()
        for statement in (_ORDERS.format(1, 40), changed):
            sql.execute(statement)
            one.run(f"{tap['name']} {TARGET}")
            columns = "id, item, price, extract(epoch from updated_at)::float8"
            seen |= set(sql.execute(f"select {columns} from orders").fetchall())
            now = sql.execute("select id, price from orders order by id").fetchall()
    hashed = [(id_, hmac.new(key.encode(), item.encode(), "sha256").hexdigest(), *rest) for id_, item, *rest in seen]
    table = lake / tap["namespace"] / stream
    assert one.rows(table, "id, item, price, epoch(__START_AT)") == sorted(hashed)
    assert [row[:2] for row in one.rows(table, "id, price, __CURRENT") if row[2]] == now


_ORDERS = """
insert into orders select i, 'ü' || i, i / 8.0, '2024-01-01'::timestamptz + i * interval '1 h'
from generate_series({}, {}) i
"""
