"""Spark sessions as the engine opens them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pyspark

from bridge.engine.session import Session


def test_secrets_are_not_in_the_process_list_and_sessions_follow_each_other(tmp_path: Path) -> None:
    """What `spark.conf` keeps secret reaches the JVM and the workers, not `ps`; a process may open a second session.

    Workers have the pyspark that is installed, with its byte code, not the zip that is compiled at each start.
    """
    conf = {"spark.my.password": "hunter2", "spark.executorEnv.API_TOKEN": "tok-123"}
    session = Session("local[1]", conf, tmp_path / "first dir", tmp_path / "log")
    here = str(tmp_path / "first dir")
    found = psutil.process_iter(["cmdline"])
    (jvm,) = (process for process in found if any(here in word for word in process.info["cmdline"] or ()))
    assert not {"hunter2", "tok-123"} & {word for part in jvm.cmdline() for word in part.split("=")}
    assert session.spark.conf.get("spark.my.password") == "hunter2"
    seen = session.spark.sparkContext.parallelize([0], 1).map(lambda _: (os.environ.get("API_TOKEN"), pyspark.__file__))
    assert seen.collect() == [("tok-123", pyspark.__file__)]
    session.close(hurry=True)
    assert not jvm.is_running()
    second = Session("local[1]", {}, tmp_path / "second", tmp_path / "log")
    assert second.spark.range(3).count() == 3
    second.close(hurry=True)
