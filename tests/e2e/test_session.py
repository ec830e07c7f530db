"""Spark sessions as the engine opens them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pyspark
import pytest

from bridge.errors import EngineError, SettingsError
from bridge.load.spark.jvm.jvm import Jvm
from bridge.load.spark.query import Engine
from bridge.load.spark.session import Session
from bridge.load.spool.spool import Spool
from bridge.load.write.context import WriteContext
from tests.e2e.conftest import TAP, Project, processes_of, stream, wait_until_gone
from tests.support.lookups import NO_LOOKUPS
from tests.support.shell import children_seconds


def test_secrets_are_not_in_the_process_list_and_sessions_follow_each_other(tmp_path: Path) -> None:
    """What `spark.conf` keeps secret reaches the JVM and the workers, not `ps`; a process may open a second session.

    Workers have the pyspark that is installed, with its byte code, not the zip that is compiled at each start.
    """
    conf = {"spark.my.password": "hunter2", "spark.executorEnv.API_TOKEN": "tok-123"}
    conf["spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"] = "az-key"
    session = Session("local[1]", conf, tmp_path / "first dir", tmp_path / "log")
    here = str(tmp_path / "first dir")
    found = psutil.process_iter(["cmdline"])
    (jvm,) = (process for process in found if any(here in word for word in process.info["cmdline"] or ()))
    assert not {"hunter2", "tok-123", "az-key"} & {word for part in jvm.cmdline() for word in part.split("=")}
    assert session.spark.conf.get("spark.my.password") == "hunter2"
    hadoop = session.spark.sparkContext._jsc.hadoopConfiguration()
    assert hadoop.get("fs.azure.account.key.lake.dfs.core.windows.net") == "az-key"
    seen = session.spark.sparkContext.parallelize([0], 1).map(lambda _: (os.environ.get("API_TOKEN"), pyspark.__file__))
    assert seen.collect() == [("tok-123", pyspark.__file__)]
    session.close(hurry=True)
    assert not jvm.is_running()
    second = Session("local[1]", {}, tmp_path / "second", tmp_path / "log")
    assert second.spark.range(3).count() == 3
    # Others of this machine can connect to the session's ports: they need a secret. What is large goes by these ports.
    assert second.spark.conf.get("spark.authenticate") == "true"
    assert (
        len(second.spark.range(0, 300_000, 1, 2).selectExpr("cast(id as string)").repartition(2).collect()) == 300_000
    )
    second.close(hurry=True)


def test_a_jvm_that_is_killed_is_not_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A command that is on its way when the JVM is killed, as py4j's collector sends, fails without a line on any log.

    py4j reports it to the root logger, which a program such as `target-bridge` prints.
    """
    session = Session("local[1]", {}, tmp_path / "scratch", tmp_path / "log")
    under_way = threading.Event()

    def send() -> None:
        with suppress(Exception):
            while True:
                session.spark.sparkContext._jvm.java.lang.Thread.sleep(50)  # type: ignore[union-attr]
                under_way.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert under_way.wait(60)
    with caplog.at_level("INFO", logger="root"):
        session.close(hurry=True)
        sender.join(60)
    assert not sender.is_alive()
    assert [record.getMessage() for record in caplog.records if record.name == "root"] == []


def test_a_jvm_that_cannot_say_where_it_listens_is_killed(tmp_path: Path) -> None:
    """Its main thread ends and another keeps it alive; the session says so in the JVM's own words, and it is gone."""
    scratch = tmp_path / "scratch"
    jvm = Jvm("local[1]", {}, scratch, tmp_path / "log")
    for folder in scratch.glob("jvm-*"):
        folder.rmdir()  # as on a disk that is full: nothing can be written there
    with pytest.raises(EngineError, match=r"Spark did not start cause=java\.\S*Exception: .*jvm-"):
        Session("local[1]", {}, scratch, tmp_path / "log", jvm=jvm)
    assert processes_of(scratch) == []


def test_a_jvm_that_never_listens_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives, says nothing and does not listen is given up in the end."""
    submit = tmp_path / "spark home" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text("#!/bin/sh\nexec sleep 600\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(submit.parents[1]))
    with pytest.raises(SettingsError, match="SPARK_HOME names no Spark"):
        Jvm("local[1]", {}, tmp_path / "scratch", tmp_path / "log")
    (submit.parents[1] / "jars").mkdir()
    jvm = Jvm("local[1]", {}, tmp_path / "scratch", tmp_path / "log")
    jvm.patience = 1.0
    with pytest.raises(EngineError, match="the JVM was not up after 1 s"):
        Session("local[1]", {}, tmp_path / "scratch", tmp_path / "log", jvm=jvm)
    assert jvm.process
    assert jvm.process.poll() is not None


ODD = 'é [a] {b,c} back\\slash "quoted" *?'
"""A folder's name as people, and their tools, give them."""


def test_a_project_may_lie_anywhere(tmp_path: Path) -> None:
    """What is a pattern to Spark, and no ASCII, is a folder's name to us, and in a job of cron (LC_ALL=C), too."""
    project = Project(tmp_path / ODD, os.environ | {"LC_ALL": "C"})
    project.folder.mkdir()
    done = project.run({"seed": 1, "streams": [stream(records=20)]}, "--timeout", "60s")
    assert done.code == 0, done.err
    files = (project.lake / "smoke" / "users").glob("*.parquet")
    assert sorted(n for file in files for n in pq.ParquetFile(file).read(["id"])["id"].to_pylist()) == list(
        range(1, 21)
    )
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 20
    assert [path.name for path in tmp_path.iterdir()] == [ODD], "Spark takes a comma for the end of a folder's name"


_STARTS = """
import os, sys, time
from pathlib import Path
from bridge.load.spark.jvm.jvm import Jvm
scratch = Path(sys.argv[1])
jvm = Jvm("local[1]", {}, scratch, scratch.parent / "log")
for folder in scratch.glob("jvm-*"):
    folder.rmdir()
print(jvm.process.pid, flush=True)
time.sleep(600)
"""


def test_a_kill_while_the_jvm_starts_leaves_none(tmp_path: Path) -> None:
    """Not even one that cannot start, and so never looks whether we are still there."""
    scratch = tmp_path / "scratch"
    program = subprocess.Popen([sys.executable, "-c", _STARTS, str(scratch)], stdout=subprocess.PIPE, text=True)
    assert program.stdout
    jvm = psutil.Process(int(program.stdout.readline()))
    program.kill()
    program.communicate()
    assert jvm.is_running()
    wait_until_gone(scratch, 60)


def test_a_stop_does_not_wait_for_a_jvm_that_starts(tmp_path: Path) -> None:
    """Whatever the run stops for, a JVM that is not up yet is killed, and not waited for."""
    (tmp_path / "spool").mkdir()
    scratch, lake = tmp_path / "scratch", tmp_path / "lake"
    job = WriteContext(str(lake), "p", "run", 0, str(tmp_path / "spool"), "zstd", {})
    engine = Engine(
        master="local[1]",
        conf={},
        spool=Spool(tmp_path / "spool"),
        scratch=scratch,
        log=tmp_path / "log",
        context=job,
        lookups=NO_LOOKUPS,
    )
    engine.start("")
    while not list(scratch.glob("jvm-*")):
        time.sleep(0.01)
    for folder in scratch.glob("jvm-*"):
        folder.rmdir()
    engine.stop(hurry=True)
    assert engine._thread
    assert not engine._thread.is_alive(), "it waits five minutes for a JVM that lives and says nothing"
    wait_until_gone(scratch, 5)


@pytest.mark.timeout(400)
def test_a_jvm_that_hangs_holds_up_nobody(project: Project) -> None:
    """A time-out ends a run whose JVM does not answer any more; what was committed stays, and no Java is left."""
    spec = {"seed": 1, "delay_ms": 5, "state": {"every": 20}, "streams": [stream(records=100_000)]}
    said = {
        "source": {"tap": TAP, "config": spec},
        "destination": {"bucket": "lake"},
        "commit": {"every": "1s"},
        "spark": {"small": 0},
    }
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": said}}))
    seconds = 45 if os.getloadavg()[0] < 8 else 200  # until three commits are made; the run takes that long
    program = f"""
import bridge.load.spark.query
from bridge.cli import main
bridge.load.spark.query._GRACE = 2.0
main(["run", "smoke", "--timeout", "{seconds}s", "--no-progress"])
"""
    run = subprocess.Popen(
        [sys.executable, "-c", program], cwd=project.folder, env=project.environ, stderr=subprocess.PIPE, text=True
    )
    try:
        commits, began = project.lake / ".bridge/smoke/commits", time.monotonic()
        while run.poll() is None and len(list(commits.glob("*.json"))) < 3:
            assert time.monotonic() - began < seconds - 1
            time.sleep(0.1)
        jvms = [one for one in psutil.Process(run.pid).children(recursive=True) if one.name() == "java"]
        assert jvms
        for jvm in jvms:
            jvm.suspend()
        _, printed = run.communicate(timeout=seconds + 75)
        assert run.returncode == 1
        assert "the run took longer than its time-out" in printed
        assert "rows that are in no commit were given up" in " ".join(printed.split())
        psutil.wait_procs(jvms, timeout=10)
        assert not any(jvm.is_running() for jvm in jvms)
    finally:
        run.kill()
    last = project.state()["bookmarks"]["users"]["replication_key_value"]
    assert project.ids("users") == list(range(1, last + 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_while_spark_starts(project: Project, tmp_path: Path) -> None:
    """The run fails with what to do, soon, and no Java is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    spool = f"{{dir: {disk}}}"
    source = f"{{tap: {TAP}, config: {{seed: 1, delay_ms: 1, streams: [{{name: users, records: 200000}}]}}}}"
    (project.folder / "bridge.yaml").write_text(
        f"pipelines: {{shop: {{source: {source}, destination: {{bucket: lake}}, spool: {spool}}}}}\n"
    )
    argv = [sys.executable, "-m", "bridge", "run", "shop", "--no-progress"]
    run = subprocess.Popen(argv, cwd=project.folder, env=project.environ, stderr=subprocess.PIPE, text=True)
    try:
        # Not by `glob`, which fails where a folder goes while it looks.
        while run.poll() is None and not any(
            name.startswith("jvm-") for _, folders, _ in os.walk(disk) for name in folders
        ):
            time.sleep(0.01)
        with suppress(OSError), (disk / "full").open("wb", buffering=0) as rest:
            while True:
                rest.write(b"x" * 4096)
        with children_seconds() as seconds:
            _, printed = run.communicate(timeout=100)
        assert run.returncode != 0
        assert "No space left on device" in printed
        assert seconds() < 40
        wait_until_gone(disk, 5)
    finally:
        run.kill()
        subprocess.run(["umount", "--lazy", str(disk)], check=False)
