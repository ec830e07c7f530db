"""Several runs of one command, each in its own process; and what `--resume` and `--max-records` leave for later."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from tests.e2e.conftest import TAP, Done, Project, stream, wait_until_gone
from tests.support.paged_shop import LAST, SECONDS
from tests.support.paged_shop import PagedShop as Shop
from tests.support.service import until

STREAMS = [stream("first", 100), stream("second", 100), stream("third", 100)]


@pytest.fixture
def pipelines(tmp_path: Path) -> Project:
    """One pipeline that loads, one whose tap dies in its second stream, one that has a lot."""
    config = {"seed": 1, "state": {"every": 10}, "streams": STREAMS}
    write(
        tmp_path,
        good={"seed": 1, "streams": [stream("users", 50)]},
        dies=config | {"fail": {"at": 155, "how": "exit"}},
        large={"seed": 1, "state": {"every": 100}, "streams": [stream("users", 100_000)]},
    )
    return Project(tmp_path)


def write(folder: Path, **configs: Any) -> None:
    """Write a bridge.yaml with a pipeline for each of the tap's settings."""
    pipelines = {
        name: {"source": {"tap": TAP, "select": ["*"], "config": config}, "destination": {"bucket": "lake"}}
        for name, config in configs.items()
    }
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))


def typed(project: Project, line: str) -> Done:
    """Type a line in the project."""
    return project.command(*shlex.split(line), timeout=400)


def loaded(project: Project, table: str) -> list[int]:
    """The ids in a table."""
    rows = duckdb.sql(f"select id from '{project.lake}/{table}/*.parquet' order by id").fetchall()
    return [row[0] for row in rows]


def results(done: Done) -> dict[str, Any]:
    """The runs' results, by pipeline."""
    return {result["pipeline"]: result for result in done.json}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_sparks_one_after_another_and_what_is_left_out(pipelines: Project) -> None:
    """Each pipeline is loaded whole, whatever the one before it came to; a resumed one goes on."""
    done = typed(pipelines, "run dies good large --keep-going --max-records 1000 --json")
    assert done.code == 1, done.err
    ran = results(done)
    assert [ran[name]["status"] for name in ("dies", "good", "large")] == ["failed", "success", "success"]
    assert loaded(pipelines, "good/users") == list(range(1, 51))
    assert loaded(pipelines, "dies/first") == list(range(1, 101))
    assert {name: facts["complete"] for name, facts in ran["dies"]["streams"].items()} == {
        "first": True,
        "second": False,
    }

    assert ran["large"]["streams"]["users"]["records"] == 1000
    assert "--max-records" in ran["large"]["warnings"][-1]
    assert loaded(pipelines, "large/users") == list(range(1, 1001))

    write(pipelines.folder, dies={"seed": 2, "streams": [stream("first", 200), *STREAMS[1:]]})
    plan = typed(pipelines, "run dies --resume --dry-run --json").json
    assert plan["skipped"] == ["first"]
    resumed = typed(pipelines, "run dies --resume --json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["skipped"] == ["first"]
    assert resumed.json["streams"].keys() == {"second", "third"}
    assert loaded(pipelines, "dies/first") == loaded(pipelines, "dies/second") == loaded(pipelines, "dies/third")
    assert resumed.json["state"]["bookmarks"]["first"]["replication_key_value"] == 100


@contextmanager
def running(shop: Shop, line: str) -> Iterator[subprocess.Popen[str]]:
    """A command that works in the shop's folder; nothing of it is left at the end."""
    words = [sys.executable, "-m", "bridge", *shlex.split(line)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=shop.folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as run:
        try:
            yield run
        finally:
            run.kill()
    wait_until_gone(shop.folder, 30)


def pid_of_run(shop: Shop, name: str) -> int:
    """The process of a pipeline's latest run."""
    process = until(lambda: shop.records(name))[0].process
    assert process
    return int(process["pid"])


@pytest.mark.timeout(300)
def test_one_process_runs_all(tmp_path: Path) -> None:
    """`run --all`: the second pipeline runs where the first one did, which has all code loaded."""
    shop = Shop(tmp_path, ("a", "b"))
    with running(shop, "run --all --json -q") as run:
        out, err = run.communicate(timeout=200)
        assert run.returncode == 0, err
    assert pid_of_run(shop, "a") == pid_of_run(shop, "b") != run.pid
    assert [(each["pipeline"], each["status"]) for each in json.loads(out)] == [("a", "success"), ("b", "success")]
    assert shop.ids("a") == shop.ids("b") == list(range(1, LAST + 1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_signal_ends_the_run_and_those_after_it(tmp_path: Path) -> None:
    """SIGINT to `run --all` is the run's: it ends cleanly, what it committed stays, the next pipeline is not run."""
    shop = Shop(tmp_path, ("a", "b"))
    shop.reads({"orders": {"last": 10 * LAST, "page": 2, "seconds": SECONDS}})
    with running(shop, "run --all --keep-going --json") as run:
        until(lambda: shop.ids("a"))
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=100)
        assert run.returncode == 130
        assert "not run: b" in err
    assert [each["status"] for each in json.loads(out)] == ["interrupted"]
    assert [record.status for record in shop.records("a")] == ["interrupted"]
    assert shop.ids("a") == list(range(1, shop.ids("a")[-1] + 1))
    assert not shop.records("b")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_run_dies_with_its_command(tmp_path: Path) -> None:
    """kill -9 of `run --all`: its run and the taps end; the next one goes on, each row is there once."""
    shop = Shop(tmp_path, ("a", "b"))
    with running(shop, "run --all -q") as run:
        until(lambda: shop.ids("a"))
        run.kill()
    with running(shop, "run --all -q") as run:
        assert run.wait(200) == 0
    assert shop.records("a")[0].status == "success"
    assert shop.ids("a") == shop.ids("b") == list(range(1, LAST + 1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_is_killed_is_a_failure_of_its_pipeline_alone(tmp_path: Path) -> None:
    """kill -9 of one run's process: the command says so, and --keep-going loads the next pipeline."""
    shop = Shop(tmp_path, ("a", "b"))
    with running(shop, "run --all --keep-going --json") as run:
        until(lambda: shop.ids("a"))
        psutil.Process(pid_of_run(shop, "a")).kill()
        out, err = run.communicate(timeout=200)
        assert run.returncode == 1
        assert "the run's process ended without a result exit_code=-9" in err
    killed, after = json.loads(out)
    assert (killed["pipeline"], killed["error"]["type"], after["status"]) == ("a", "EngineError", "success")
    assert shop.ids("b") == list(range(1, LAST + 1))
    with running(shop, "run a -q") as run:
        assert run.wait(100) == 0
    assert shop.ids("a") == list(range(1, LAST + 1))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_runs_again(tmp_path: Path) -> None:
    """`run --every` loads what is new; if the process that waits is killed, the next has another; SIGTERM ends it."""
    shop = Shop(tmp_path)
    shop.reads({"orders": {"last": 4}})
    words = [sys.executable, "-m", "bridge", "run", "shop", "--every", "5s", "-q"]
    with subprocess.Popen(words, cwd=tmp_path, start_new_session=True) as run:
        for times in (1, 2, 3):
            shop.reads({"orders": {"last": 4 * times}})
            until(lambda times=times: shop.ids() == list(range(1, 4 * times + 1)))
            until(lambda: shop.records()[0].status == "success")
            if times == 2:
                psutil.Process(pid_of_run(shop, "shop")).kill()
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 143
    wait_until_gone(tmp_path, 30)
