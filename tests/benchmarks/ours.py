"""singer-bridge as a user runs it, and the Spark session that it cannot be faster than."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from bridge.load.spark.jvm.archive_maker import make

from .system import SMALL_RUN_RECORDS, Job, Launch, Rows, System, count_ids
from .venvs import own_program

PIPELINE = "bench"


def tap_command() -> str:
    """The cheapest tap there is, for every system that starts its tap itself: it only copies a file to its stdout."""
    return str(own_program("tap-replay"))


def make_class_archive() -> None:
    """Make the JVM's class archive before anything is measured, as a user's runs have it from the third on."""
    with suppress(BlockingIOError, RuntimeError):
        make()


class Ours(System):
    """One `run` of the product: its tap, its JVM, its workers, its commit."""

    name = "ours"
    label = "singer-bridge"
    records = (SMALL_RUN_RECORDS, 1_000_000, 4_000_000)

    def launch(self, job: Job) -> Launch:
        """A new lake and project folder each time; the machine's cache (the JVM archive) is kept, as at a user's."""
        config = json.dumps({"path": str(job.input.singer)})
        tap = ("--tap", shlex.quote(tap_command()), "--tap-config", config, "--catalog", job.input.catalog)
        command: list[str | Path] = [
            own_program("singer-bridge"),
            "run",
            *tap,
            "--to",
            job.out / "lake",
            "--name",
            PIPELINE,
            "--json",
        ]
        return Launch(command, environment={"SINGER_BRIDGE_HOME": str(job.out / "home")})

    def rows(self, job: Job) -> Rows:
        """What a reader of the folder sees: published files only."""
        return count_ids(sorted((job.out / "lake" / PIPELINE).rglob("*.parquet")))


class OursAsTarget(System):
    """The same engine as a Singer target, beside the targets that get the same bytes on stdin."""

    name = "target-bridge"
    label = "singer-bridge as target-bridge"
    records = (100_000, 1_000_000)

    def launch(self, job: Job) -> Launch:
        """With default settings."""
        config = job.out / "target.json"
        config.write_text(json.dumps({"bucket": str(job.out / "lake"), "pipeline": PIPELINE}), encoding="utf-8")
        environment = {"SINGER_BRIDGE_HOME": str(job.out / "home")}
        return Launch([own_program("target-bridge"), "--config", config], job.input.singer, environment)

    def rows(self, job: Job) -> Rows:
        """What a reader of the folder sees: published files only."""
        return count_ids(sorted((job.out / "lake" / PIPELINE).rglob("*.parquet")))


class BareSpark(System):
    """A session with the product's flags that streams one tiny file through mapInArrow: the floor of a small run."""

    name = "bare-spark"
    label = "bare Spark session, nothing done"
    records = (SMALL_RUN_RECORDS,)
    counts_rows = False

    def launch(self, job: Job) -> Launch:
        """It reads a file of its own making; the input's size does not matter."""
        return Launch([sys.executable, Path(__file__).with_name("bare_spark.py"), job.out])

    def rows(self, job: Job) -> Rows:
        """Nothing is stored."""
        return Rows(0, 0)


def search_path() -> str:
    """PATH with the benchmark's own environment first, as an activated one has it."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
