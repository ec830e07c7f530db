"""`state_backend.uri: bridge+...` in a real Meltano: what its verbs show, what a kill leaves, and two runs at once."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from tests.e2e.meltano import ROOT, UV, Meltano, built_wheel, installed_meltano
from tests.e2e.test_meltano import STORED, TARGET, kept, numbers, stream
from tests.support.tables import INTEGER, Shop

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]

ID = "dev:tap-smoke-to-target-bridge"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Meltano:
    """A project whose Meltano has our wheel, for the state backend, the tap and the target alike."""
    programs = installed_meltano(tmp_path_factory.mktemp("meltano") / "venv")
    wheel = built_wheel(tmp_path_factory.mktemp("dist"))
    words = [UV, "pip", "install", "--quiet", "--python", programs / "python", wheel]
    subprocess.run(words, check=True, timeout=600)
    folder = tmp_path_factory.mktemp("shop")
    settings = [{"name": "streams", "kind": "array"}, {"name": "delay_ms", "kind": "integer"}]
    tap = {"name": "tap-smoke", "namespace": "tap_smoke", "executable": str(programs / "tap-smoke")}
    tap |= {
        "settings": [*settings, {"name": "state", "kind": "object"}],
        "capabilities": ["catalog", "discover", "state"],
    }
    loads = {"name": TARGET, "namespace": "target_bridge", "executable": str(programs / TARGET)}
    values = [("path", "$MELTANO_EXTRACT__LOAD_SCHEMA"), ("pipeline", "$MELTANO_ENVIRONMENT.$MELTANO_EXTRACTOR_NAME")]
    loads["settings"] = [{"name": name, "value": value} for name, value in values]
    loads["settings"] += [{"name": "bucket"}, {"name": "batch_size_rows", "kind": "integer"}]
    project = {
        "environments": [{"name": "dev"}, {"name": "killed"}, {"name": "two"}, {"name": "plain"}, {"name": "back"}]
    }
    lake = yaml.safe_load((ROOT / "deploy/meltano/tap-bridge.yml").read_text())
    lake |= {"executable": str(programs / "tap-bridge"), "pip_url": None}
    project |= {"plugins": {"extractors": [tap, lake], "loaders": [loads, _lines(programs)]}}
    (folder / "meltano.yml").write_text(yaml.safe_dump(project))
    return Meltano(folder, programs)


def _lines(programs: Path) -> dict[str, Any]:
    """A loader without a log of ours: it prints each STATE that it reads."""
    program = programs / "target-lines"
    program.write_text(
        f"#!{programs / 'python'}\n"
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    if message['type'] == 'STATE':\n"
        "        print(json.dumps(message['value']), flush=True)\n"
    )
    program.chmod(0o755)
    return {"name": "target-lines", "namespace": "target_lines", "executable": str(program)}


def having(shop: Meltano, lake: Path, environment: str, **more: Any) -> Meltano:
    """The project with a lake that holds the STATE, too."""
    uri = f"bridge+file://{lake}"
    return shop.having(environment, TARGET_BRIDGE_BUCKET=str(lake), MELTANO_STATE_BACKEND_URI=uri, **more)


def typed(project: Meltano, line: str, code: int = 0) -> str:
    done = project.type(f"meltano {line}")
    assert done.code == code, done.err + done.out
    return done.out.strip()


def test_rows_and_state_are_one_commit(shop: Meltano, tmp_path: Path) -> None:
    """What `state get` shows is the STATE that the target committed; Meltano adds no commit; the next run goes on."""
    lake = tmp_path / "lake"
    one = having(shop, lake, "dev")
    one.having(TAP_SMOKE_STREAMS=stream(20)).run(f"tap-smoke {TARGET}")
    log = Log(open_storage(str(lake)), "dev.tap-smoke")
    assert {record.kind for record in log.history(log.head())} <= {"data", "fence"}
    assert one.state("tap-smoke") == kept(one, lake, "dev.tap-smoke")
    one.having(TAP_SMOKE_STREAMS=stream(30)).run(f"tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(30)
    assert one.state("tap-smoke")["bookmarks"]["users"]["replication_key_value"] == 30
    assert typed(one, "state list").splitlines() == [ID]
    _check_verbs(one, lake)


def _check_verbs(one: Meltano, lake: Path) -> None:
    """`set`, `merge`, `copy`, `move`, `clear`; and the next run starts where somebody set it."""
    now = one.state("tap-smoke")
    typed(one, f"state copy --force {ID} other:tap-smoke-to-target-lines")
    assert json.loads(typed(one, "state get other:tap-smoke-to-target-lines")) == {"singer_state": now}
    more = json.dumps({"singer_state": {"bookmarks": {"orders": {"replication_key_value": 7}}}})
    typed(one, f"state merge other:tap-smoke-to-target-lines '{more}'")
    typed(one, "state move --force other:tap-smoke-to-target-lines moved")
    bookmarks = json.loads(typed(one, "state get moved"))["singer_state"]["bookmarks"]
    assert bookmarks == {**now["bookmarks"], "orders": {"replication_key_value": 7}}
    assert typed(one, "state list").splitlines() == [ID, "moved"]
    typed(one, "state clear --force moved")
    assert typed(one, "state list").splitlines() == [ID]
    now["bookmarks"]["users"]["replication_key_value"] = 25
    payload = json.dumps({"singer_state": now})
    typed(one, f"state set --force {ID} '{payload}'")
    assert one.state("tap-smoke") == kept(one, lake, "dev.tap-smoke") == now
    history = one.type(f"singer-bridge state history --to {lake} --name dev.tap-smoke")
    assert f"meltano state: {ID}" in history.out + history.err
    refused = one.type(f"""meltano state set --force --no-validate {ID} '{{"bookmarks": {{}}}}'""")
    assert (refused.code, "no singer_state" in refused.err) == (1, True), refused.err
    assert one.state("tap-smoke") == now


def test_states_of_another_backend_come_over(shop: Meltano, tmp_path: Path) -> None:
    """`state export` of one backend is what `state import` of the other takes, complete and partial STATEs alike."""
    complete, partial = ({"singer_state": {"bookmarks": {name: {"n": 1.5}}}} for name in ("a", "b"))
    states = {"dev:tap-a-to-target-lines": {"completed": complete, "partial": partial}, "free": {"completed": complete}}
    (shop.folder / "states.json").write_text(json.dumps(states))
    one = having(shop, tmp_path / "lake", "dev")
    typed(one, "state import states.json")
    exported = json.loads(typed(one, "state export"))
    merged = {"singer_state": {"bookmarks": {"a": {"n": 1.5}, "b": {"n": 1.5}}}}
    expected = {"dev:tap-a-to-target-lines": merged, "free": complete}
    assert {name: state["completed"] for name, state in exported.items()} == expected


def test_a_lake_as_the_source(shop: Meltano, tmp_path: Path) -> None:
    """The shipped definition of `tap-bridge`: settings, discovery, and a second run that starts at the bookmark."""
    source = Shop(tmp_path)
    source.load("t", {"id": INTEGER}, [{"id": n} for n in range(5)])
    one = having(shop, tmp_path / "states", "dev", TAP_BRIDGE_BUCKET=str(source.root), TAP_BRIDGE_THREADS="2")
    one.run("tap-bridge target-lines")
    state = json.loads(typed(one, "state get dev:tap-bridge-to-target-lines"))["singer_state"]
    assert state["bookmarks"]["t"]["commit"] == 1
    source.load("t", {"id": INTEGER}, [{"id": 9}])
    assert "whole table is sent again" not in one.run("tap-bridge target-lines")
    state = json.loads(typed(one, "state get dev:tap-bridge-to-target-lines"))["singer_state"]
    assert state["bookmarks"]["t"]["commit"] == 2


def test_definitions_fit_meltano_s_schema(shop: Meltano) -> None:
    """The plugins' definitions that we ship, and the hub's entries but for what is of its pages, fit into a project."""
    page = {"domain_url", "keywords", "maintenance_status", "quality", "prereq"}
    (schema,) = shop.programs.parent.glob("lib/python*/site-packages/meltano/schemas/meltano.schema.json")
    validator = Draft202012Validator(json.loads(schema.read_text()))
    folder = ROOT / "deploy/meltano"
    for kind, names in (("extractors", "tap-*"), ("loaders", "target-*")):
        for file in [*folder.glob(f"{names}.yml"), *folder.glob(f"hub/{kind}/{names}/*.yml")]:
            plugin = yaml.safe_load(file.read_text())
            project = {"plugins": {kind: [{key: value for key, value in plugin.items() if key not in page}]}}
            assert [error.message for error in validator.iter_errors(project)] == [], file


def test_meltano_killed_in_the_middle_of_a_run(shop: Meltano, tmp_path: Path) -> None:
    """The target commits on, and its STATE is what the next run starts from: what came after it is taken back."""
    lake = tmp_path / "lake"
    one = having(shop, lake, "killed", TARGET_BRIDGE_BATCH_SIZE_ROWS=100)
    slow = one.having(TAP_SMOKE_STREAMS=stream(1500), TAP_SMOKE_STATE={"every": 50}, TAP_SMOKE_DELAY_MS=10)
    slow.killed(f"tap-smoke {TARGET}", STORED)
    state = one.state("tap-smoke")
    assert state == kept(one, lake, "killed.tap-smoke")
    stored = state["bookmarks"]["users"]["replication_key_value"]
    rows = len(one.rows(lake / "tap_smoke/users"))  # those after the last STATE come again
    assert stored <= rows < 1500
    assert one.rows(lake / "tap_smoke/users") == numbers(rows)
    one.having(TAP_SMOKE_STREAMS=stream(1600)).run(f"--force tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(1600)
    log = Log(open_storage(str(lake)), "killed.tap-smoke")
    taken_back = "rollback" in {record.kind for record in log.history(log.head())}
    assert taken_back == (rows > stored)
    assert one.state("tap-smoke") == kept(one, lake, "killed.tap-smoke")


def test_the_state_is_set_back_as_printed(shop: Meltano, tmp_path: Path) -> None:
    """Meltano's own STATE is newer after `rollback` and `state set`: its run is refused until the command is typed."""
    lake, name = tmp_path / "lake", "back.tap-smoke"
    one = shop.having("back", TARGET_BRIDGE_BUCKET=str(lake))
    for records in (20, 30):
        one.having(TAP_SMOKE_STREAMS=stream(records)).run(f"tap-smoke {TARGET}")
    log = Log(open_storage(str(lake)), name)
    first = min(record.n for record in log.history(log.head()) if record.kind == "data")
    state = kept(one, lake, name)
    _set_back(one, f"singer-bridge rollback {first} --to {lake} --name {name} --yes")
    one.having(TAP_SMOKE_STREAMS=stream(40)).run(f"tap-smoke {TARGET}")
    assert one.rows(lake / "tap_smoke/users") == numbers(40)
    before = json.dumps(state)
    _set_back(one, f"singer-bridge state set '{before}' --to {lake} --name {name} --yes")
    one.having(TAP_SMOKE_STREAMS=stream(50)).run(f"tap-smoke {TARGET}")
    assert one.state("tap-smoke") == kept(one, lake, name)
    assert {row[0] for row in one.rows(lake / "tap_smoke/users")} == set(range(1, 51))


def _set_back(one: Meltano, line: str) -> None:
    """Type a command that sets back the lake; Meltano's next run is refused; then type what both of them printed."""
    done = one.type(line)
    assert done.code == 0, done.err
    refused = one.having(TAP_SMOKE_STREAMS=stream(50)).run(f"tap-smoke {TARGET}", code=1)
    assert "would be missing" in refused
    printed = [text.partition("in Meltano: ")[2] for text in (*done.err.splitlines(), *refused.splitlines())]
    first, second = (text for text in printed if text)
    assert second.startswith(first), (first, second)
    done = one.type(first.replace("STATE_ID", "back:tap-smoke-to-target-bridge"))
    assert done.code == 0, done.err + done.out


@pytest.mark.parametrize(("environment", "loader"), [("two", TARGET), ("plain", "target-lines")])
def test_of_two_runs_at_once_one_is_refused(shop: Meltano, tmp_path: Path, environment: str, loader: str) -> None:
    """From two machines, as it were: another folder has another system database. The first run goes on.

    The target waits a minute for one that a killed Meltano left alone; then it is refused.
    """
    lake = tmp_path / "lake"
    first = having(shop, lake, environment, TARGET_BRIDGE_BATCH_SIZE_ROWS=100)
    first = first.having(TAP_SMOKE_STREAMS=stream(100_000), TAP_SMOKE_STATE={"every": 50}, TAP_SMOKE_DELAY_MS=20)
    folder = tmp_path / "second"
    folder.mkdir()
    shutil.copy(shop.folder / "meltano.yml", folder)
    second = replace(first.having(TAP_SMOKE_STREAMS=stream(700), TAP_SMOKE_DELAY_MS="0"), folder=folder)
    get = f"state get {environment}:tap-smoke-to-{loader}"
    with first._started(f"tap-smoke {loader}", STORED) as running:
        refused = second.run(f"tap-smoke {loader}", code=1)
        assert "holds this pipeline" in refused, refused
        before = json.loads(typed(second, get))["singer_state"]["bookmarks"]["users"]["replication_key_value"]
        assert running.poll() is None
        running.terminate()
        running.wait(300)
    stored = json.loads(typed(first, get))["singer_state"]["bookmarks"]["users"]["replication_key_value"]
    assert stored >= before >= 50
    if loader == TARGET:
        assert first.rows(lake / "tap_smoke/users") == numbers(stored)
