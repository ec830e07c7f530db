"""A Spark cluster on hosts of its own, without a folder that they share, and what happens to its network.

Driver and master, two workers and the store are in network namespaces. A worker sees none of the others' files: an
empty filesystem of its own lies over the folder in which they are.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import duckdb

from tests.support.cluster import Daemon
from tests.support.network import Network
from tests.support.s3server import S3Server

HOSTS = ["driver", "worker-1", "worker-2", "store"]
WORKERS = HOSTS[1:3]
URI = "s3://hosts/team"
_META = "/hosts/team/.bridge/smoke"
_TIMEOUTS = {"spark.worker.timeout": "12", "spark.network.timeout": "16s"}

MOMENTS = {
    "upload": rf"(PUT|POST) {_META}/pending/spool-",  # by the driver
    "read": rf"GET {_META}/pending/spool-",  # by a worker
    "write": rf"(PUT|POST) {_META}/pending/part-|POST /hosts/team/smoke/.*uploads",  # by a worker
    "commit": rf"PUT {_META}/commits/",
    "publish": r"(PUT|POST) /hosts/team/smoke/orders/",
    "recovery": rf"PUT {_META}/commits/",
}
"""Requests by which a run is known to have come there; the store holds the first until the network has changed."""


@dataclass(frozen=True)
class Fault:
    """What happens to which hosts, when, for how many seconds."""

    kind: str
    ends: tuple[str, ...]
    moment: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} {' and '.join(self.ends)} at {self.moment} for {self.seconds:.0f} s"


_LINKS = [("driver", "store"), ("driver", WORKERS[0]), (WORKERS[0], "store"), (WORKERS[1], "store")]


KINDS: dict[str, list[tuple[str, ...]]] = {
    "cut": [*_LINKS],
    "slow": [*_LINKS],
    "away": [(one,) for one in WORKERS],
    "lossy": [*_LINKS],
    "lost": [(one,) for one in WORKERS],
}
"""What can happen to which hosts."""


def _cells(choose: random.Random, places: list[tuple[str, ...]]) -> list[tuple[tuple[str, ...], str]]:
    """Places and moments: all places by turns, each time at another moment."""
    places, moments = choose.sample(places, len(places)), choose.sample(list(MOMENTS), len(MOMENTS))
    turns = product(range(len(moments)), enumerate(places))
    return [(place, moments[(turn + at) % len(moments)]) for turn, (at, place) in turns]


def plan(seed: int, rounds: int) -> list[Fault]:
    """So many faults: every other one cuts a link, each at another moment. All follow from the seed.

    Thirty have each kind of fault at each place where it can happen.
    """
    choose = random.Random(seed)
    cells = {kind: cycle(_cells(choose, places)) for kind, places in KINDS.items()}
    kinds = ("cut", "slow", "cut", "away", "cut", "lossy", "cut", "lost")
    return [Fault(kind, *next(cells[kind]), choose.uniform(2, 14)) for kind in islice(cycle(kinds), rounds)]


@dataclass
class Hosts:
    """The cluster, its store, and the pipeline."""

    network: Network
    store: S3Server
    folder: Path
    python: Path
    master: str = ""
    workers: dict[str, Daemon] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)

    def daemon(self, host: str, role: str, *words: str, hidden: Path | None = None) -> Daemon:
        options = " ".join(f"-D{key}={value}" for key, value in _TIMEOUTS.items())
        own, of = self.network[host], f"org.apache.spark.deploy.{role}"
        local = self.folder / "local"
        spark, settings = Path(sys.executable), {"SPARK_DAEMON_JAVA_OPTS": options}
        daemon = Daemon(spark, local, own.address, of, *words, within=own.words, hidden=hidden, **settings)
        self.stack.callback(daemon.kill)
        return daemon

    def start(self) -> None:
        """Start the master and all workers."""
        self.master = self.daemon("driver", "master.Master").said(r"Starting Spark master at (spark://\S+)")
        self.restore()

    def restore(self) -> None:
        """Have whole links, and all workers."""
        self.network.heal()
        new = [name for name in WORKERS if name not in self.workers or self.workers[name].process.poll() is not None]
        for name in new:
            sizes = ("--cores", "1", "--memory", "512m", "--work-dir", str(self.folder / "work"), self.master)
            self.workers[name] = self.daemon(name, "worker.Worker", *sizes, hidden=self.folder)
        for name in new:
            self.workers[name].said(r"(Successfully registered) with master")

    def run(self, orders: int, users: int, *words: str) -> subprocess.Popen[str]:
        """Start a run on the driver's host. The tap has so many records, of which the lake lacks the last ones."""
        project, driver = self.folder / "driver", self.network["driver"]
        streams = [{"name": "orders", "records": orders, "wide": 400}, {"name": "users", "records": users}]
        conf = {"spark.driver.host": driver.address, "spark.driver.bindAddress": driver.address}
        conf |= {"spark.executor.memory": "512m", "spark.pyspark.python": str(self.python)}
        conf |= {"spark.executor.heartbeatInterval": "3s", "spark.network.timeoutInterval": "4s"}
        conf["spark.network.timeout"] = _TIMEOUTS["spark.network.timeout"]
        conf |= {f"spark.executorEnv.{key}": value for key, value in self.store.environ.items()}
        pipeline = {
            "source": {"tap": [sys.executable, "-m", "tap_smoke"]},
            "destination": {"bucket": URI, "s3": {"endpoint_url": self.store.endpoint}},
            "commit": {"bytes": "1MiB"},
            "spool": {"max_bytes": "9MiB"},
            "streams": {"users": {"load_method": "upsert"}},
            "spark": {"master": self.master, "conf": conf},
        }
        pipeline["source"]["config"] = {"streams": streams, "state": {"every": 1000}}
        project.mkdir(exist_ok=True)
        (project / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))
        command = [*driver.words, sys.executable, "-m", "bridge", "run", "smoke", "--json", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=project, text=True, start_new_session=True, env=dict(os.environ), **pipes)

    def begin(self, fault: Fault) -> None:
        """Let it happen."""
        links = [self.network.link(*fault.ends)] if len(fault.ends) == 2 else self.network.links_of(fault.ends[0])
        for link in links:
            if fault.kind == "slow":
                link.delay = 0.05
            elif fault.kind == "lossy":
                link.loss = 0.05
            else:
                link.cut = True
        if fault.kind == "lost":
            self.workers[fault.ends[0]].kill()

    def keys(self, prefix: str) -> list[str]:
        pages = self.store.client().get_paginator("list_objects_v2").paginate(Bucket="hosts", Prefix=f"team/{prefix}")
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def get(self, key: str) -> bytes:
        return bytes(self.store.client().get_object(Bucket="hosts", Key=key)["Body"].read())

    def rows(self, stream: str, into: Path) -> tuple[int, int, int]:
        """What DuckDB finds in the files that anybody sees: rows, different ids, the largest."""
        into.mkdir()
        for number, key in enumerate(self.keys(f"smoke/{stream}/")):
            if key.endswith(".parquet"):
                (into / f"{number}.parquet").write_bytes(self.get(key))
        if not any(into.iterdir()):
            return 0, 0, 0
        query = f"SELECT count(*), count(DISTINCT id), max(id) FROM read_parquet('{into}/*.parquet')"
        rows, ids, last = duckdb.sql(query).fetchall()[0]
        return rows, ids, last

    def bookmark(self, stream: str) -> int:
        """Up to which record `state.json` says that the lake has all."""
        if not self.keys(".bridge/smoke/state.json"):
            return 0
        state = json.load(io.BytesIO(self.get("team/.bridge/smoke/state.json")))
        return int(state["bookmarks"].get(stream, {}).get("replication_key_value") or 0)

    def left(self) -> list[str]:
        """Pending files and uploads under way, the spool's as well."""
        uploads: list[dict[str, Any]] = self.store.client().list_multipart_uploads(Bucket="hosts").get("Uploads", [])
        return self.keys(".bridge/smoke/pending/") + [upload["Key"] for upload in uploads]


@contextmanager
def hosts(folder: Path, python: Path, seed: int) -> Iterator[Hosts]:
    """The hosts, up and connected, until the end of the block."""
    with Network(HOSTS, seed) as network, ExitStack() as stack:
        own = network["store"]
        store = stack.enter_context(S3Server(own.words, own.address))
        store.bucket("hosts")
        machine = Hosts(network, store, folder, python)
        stack.callback(machine.stack.close)
        machine.start()
        yield machine


def wait_until(happened: Callable[[], Any], run: subprocess.Popen[str], seconds: float) -> bool:
    """Wait for something that a run does, or for its end; return whether it happened."""
    until = time.monotonic() + seconds
    while run.poll() is None and time.monotonic() < until:
        if happened():
            return True
        time.sleep(0.05)  # nothing tells of it but the store
    return False
