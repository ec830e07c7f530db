"""SIGKILL of real processes of real runs: at random, and at every step of the protocol; while readers look on."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from .autopsy import STEPS, Finding
from .campaign import CLEAN_EVERY, Campaign, Kill, plan
from .lakes import Bucket
from .project import APPEND, MIXED, OVERWRITE, PARALLEL, SHAPES, TRANSFORM, UPSERT, VIEWS, Project, Shape
from .readers import Watch, witnesses

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
KILLS = int(os.environ.get("KILLS") or 300)
LANES = int(os.environ.get("LANES") or 2)
"""Lakes under siege at the same time."""
_ALL_LAKES = ",".join(f"{shape},s3-{shape}" for shape in SHAPES)
LAKES = (os.environ.get("LAKES") or _ALL_LAKES).split(",")

SPOOL = {"spool": {"dir": os.environ["SPOOL"]}} if os.environ.get("SPOOL") else {}
"""`bucket`: the spool of the long campaign lies in the bucket, as on a cluster."""

LAKES_OF_STORES: dict[str, Callable[[str, Any], Bucket]] = {"s3": Bucket}
"""By the scheme of its URI, with which the name of such a lake begins; tests/interop adds more."""

_FULL_SIZE = 300
"""From so many kills on, every step has to be hit so often as the promise says."""
_ADDED = 600
"""Records of each stream in a run of the long campaign."""


@pytest.fixture(scope="module")
def reader_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session that only reads, as an analyst's would."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("reader")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("reader") / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()  # and its JVM, which pyspark would keep for the next session of this process
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def _besiege(project: Project, kills: Sequence[Kill], session: Any, *, a_second: float) -> Campaign:
    """Carry the kills out, hold the lake against the source every now and then and in the end."""
    readers = witnesses(project.lake, session, a_second=a_second)
    with Campaign(project) as campaign:
        campaign.clean_run(measure=any(kill.aim == "any" for kill in kills))
        with Watch(project.history, project.tables, readers) as watch:
            for number, kill in enumerate(kills, 1):
                campaign.kill(kill)
                print(campaign.notes[-1], flush=True)
                assert watch.wrong == []
                if number % CLEAN_EVERY == 0:
                    campaign.clean_run()
            campaign.clean_run()
    print(f"{project.name}: looks {dict(watch.looks)}, loud {dict(watch.errors)}, exits {dict(campaign.exits)}")
    assert watch.wrong == []
    assert len(campaign.findings) >= len(kills)
    assert min(watch.looks[reader] for reader in readers) > len(kills), f"each looked, all the time: {watch.looks}"
    appended = {stream for stream, kind in project.shape.streams.items() if kind["replication_method"] == "INCREMENTAL"}
    if project.shape is UPSERT:
        appended = set()  # Spark takes a file's size from its listing, and says so when the file was replaced since
    assert [error for error in watch.errors if error[0] in appended] == [], "an append never fails a reader"
    return campaign


def _kills(shape: Shape, aims: Sequence[tuple[str, str]]) -> list[Kill]:
    print(f"\nSEED={SEED}")
    rng = random.Random(f"{SEED} {shape.name}")
    return [Kill(target, aim, rng.random()) for target, aim in aims]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("shape", "aims"),
    [
        pytest.param(APPEND, [("worker", "writing"), ("bridge", "any")], marks=pytest.mark.slow),
        pytest.param(APPEND, [("jvm", "any"), ("tap", "any"), ("bridge", "between")], marks=pytest.mark.slow),
        pytest.param(
            OVERWRITE, [("bridge", "part"), ("bridge", "forward"), ("bridge", "closing")], marks=pytest.mark.slow
        ),
        pytest.param(MIXED, [("bridge", "record"), ("bridge", "fence"), ("bridge", "pending")], marks=pytest.mark.slow),
        pytest.param(UPSERT, [("bridge", "part"), ("bridge", "forward")], marks=pytest.mark.slow),
        pytest.param(
            TRANSFORM, [("worker", "writing"), ("bridge", "pending"), ("bridge", "part")], marks=pytest.mark.slow
        ),
        pytest.param(PARALLEL, [("tap", "any"), ("bridge", "between"), ("bridge", "part")], marks=pytest.mark.slow),
        pytest.param(VIEWS, [("worker", "writing"), ("bridge", "part"), ("bridge", "forward")], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_record_is_there_once_whoever_is_killed(
    shape: Shape, aims: list[tuple[str, str]], tmp_path: Path, reader_session: Any
) -> None:
    """Every process, and steps of the protocol; the next clean run leaves each record once and the last STATE."""
    _besiege(Project(tmp_path / "project", shape), _kills(shape, aims), reader_session, a_second=5)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "aims",
    [
        [("worker", "writing"), ("bridge", "part")],
        pytest.param([("bridge", "record"), ("bridge", "forward"), ("bridge", "closing")], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_in_a_bucket_too(aims: list[tuple[str, str]], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The same with the lake on S3: nothing of a commit visible, a part of it, while that is repaired."""
    with _bucket(request.getfixturevalue("s3"), "s3-kills") as bucket:
        _besiege(Project(tmp_path / "project", MIXED, bucket), _kills(MIXED, aims), None, a_second=5)


@contextmanager
def _bucket(server: Any, name: str) -> Iterator[Bucket]:
    server.bucket(name)
    scheme = name.partition("-")[0]
    bucket = LAKES_OF_STORES[scheme](f"{scheme}://{name}/team", server.environ)
    yield bucket
    bucket.close()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_long_siege_changes_nothing(tmp_path: Path, reader_session: Any, request: pytest.FixtureRequest) -> None:
    """`KILLS` kills shared out among all lakes, folders and S3; every step of the protocol is hit again and again."""
    print(f"\nSEED={SEED} KILLS={KILLS} LANES={LANES} LAKES={','.join(LAKES)}")
    server = request.getfixturevalue("s3") if any("-" in name for name in LAKES) else None
    each = -(-KILLS // len(LAKES))

    def siege(name: str) -> list[Finding]:
        store, _, kind = name.rpartition("-")
        shape = next(shape for shape in SHAPES if shape.name == kind)
        with _bucket(server, name) if store else nullcontext() as bucket:
            project = Project(tmp_path / name, shape, bucket, added=_ADDED, **SPOOL)
            kills = plan(f"{SEED} {name}", each, project.targets, project.never)
            return _besiege(project, kills, reader_session, a_second=4).findings

    with ThreadPoolExecutor(LANES) as lanes:
        sieges = [lanes.submit(siege, name) for name in LAKES]
    findings = [finding for siege in sieges if not siege.exception() for finding in siege.result()]
    _report(findings)
    for ended in sieges:
        ended.result()  # raises what went wrong there
    assert len(findings) >= KILLS
    request.node.user_properties.append(("kills", len(findings)))  # docs/stores.md has it
    _check_histogram(findings)


def _report(findings: list[Finding]) -> None:
    steps = Counter(finding.step for finding in findings)
    print(f"\n{len(findings)} kills, seed {SEED}")
    for step in STEPS:
        print(f"  {steps[step]:4}  {step}")
    print(f"  {sum(f.pending for f in findings):4}  of them with pending files")
    print(f"  {sum(f.recovery for f in findings):4}  of them in recovery", flush=True)


def _check_histogram(findings: list[Finding]) -> None:
    """Fail a long campaign that did not get everywhere."""
    if KILLS < _FULL_SIZE or len(LAKES) == 1:
        return
    steps = Counter(finding.step for finding in findings)
    assert [step for step in STEPS if steps[step] < 10] == [], "hardly hit"
    assert sum(finding.pending for finding in findings) >= 0.3 * len(findings)
    assert sum(finding.recovery for finding in findings) >= 20


def test_a_plan_is_its_seed_s() -> None:
    """The same seed, the same kills; every scene comes before one comes again."""
    assert plan("7 append", 40) == plan("7 append", 40) != plan("8 append", 40)
    assert {kill.target for kill in plan("7 append", 30)} == {"bridge", "jvm", "tap", "worker"}
