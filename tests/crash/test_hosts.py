"""A cluster of hosts without a shared folder: links that are slow, lossy or cut, and workers that go away, cost no row.

ROUNDS (default 30) and SEED as in README.md; each round prints what happened, and how its run ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.crash.hosts import KINDS, MOMENTS, Fault, Hosts, hosts, plan, wait_until
from tests.support.cluster import EXECUTORS_NEED, make_venv
from tests.support.network import Network, obstacle
from tests.support.s3server import ROOT

ROUNDS = int(os.environ.get("ROUNDS") or 30)
SEED = int(os.environ.get("SEED") or 1)
ORDERS, USERS = 5000, 1500
"""Records that come with each round: several commits."""
_COMES_WITHIN = 90.0
"""Seconds in which a run comes to the moment of its fault, or is not disturbed."""
_RUN, _ENDS_WITHIN = "4m", 330.0
"""When a run ends itself, and when it must have ended, in seconds."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + (ROUNDS + 1) * 2 * int(_ENDS_WITHIN))]


def test_a_plan_has_each_kind_of_fault_and_each_moment() -> None:
    """Thirty rounds meet all of them, each kind at each link or worker; the same seed gives the same plan."""
    faults = plan(SEED, 30)
    assert faults == plan(SEED, 30)
    assert {(fault.kind, fault.ends) for fault in faults} == {(kind, at) for kind, all_ in KINDS.items() for at in all_}
    assert {fault.moment for fault in faults} == set(MOMENTS)


_LISTEN = (
    "import socket, sys; s = socket.create_server((sys.argv[1], 9)); print('up', flush=True)\nwhile True: s.accept()"
)
_CONNECT = "import socket, sys, time; t = time.monotonic(); socket.create_connection((sys.argv[1], 9), 1)"
_CONNECT += "; print(time.monotonic() - t)"
_DIE = "import os; from tests.support.network import Network; Network(['a']).__enter__(); os.kill(os.getpid(), 9)"


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout


def test_a_network_is_what_it_says_and_goes_with_its_test() -> None:
    """Hosts hear each other late, or not at all; nothing stays of a test that fails, and of one that is killed."""
    if why := obstacle():
        pytest.skip(f"no hosts of our own: {why}")
    with subprocess.Popen([sys.executable, "-c", _DIE], cwd=ROOT) as killed:
        killed.wait(60)
    assert f"singer-{killed.pid}-" in _namespaces()

    def seconds() -> float | None:
        command = [*network["a"].words, sys.executable, "-c", _CONNECT, network["b"].address]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        return float(ended.stdout) if ended.returncode == 0 else None

    with pytest.raises(ZeroDivisionError), Network(["a", "b"]) as network:
        command = [*network["b"].words, sys.executable, "-c", _LISTEN, network["b"].address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout and listener.stdout.readline() == "up\n"
            assert (seconds() or 1) < 0.4
            network.link("a", "b").delay = 0.2
            assert (seconds() or 0) >= 0.4
            network.link("a", "b").cut = True
            assert seconds() is None
            network.heal()
            assert (seconds() or 1) < 0.4
            network.__exit__()
            assert listener.wait(10) == -signal.SIGKILL
        raise ZeroDivisionError
    assert not {name for name in (f"singer-{killed.pid}-", f"singer-{os.getpid()}-") if name in _namespaces()}


def test_faults_of_the_network_cost_no_row(tmp_path: Path) -> None:
    """After each round no row is there twice and no bookmark leads its rows; at the end each row is there once.

    Workers see neither the driver's files nor each other's: the bucket is all that they share. Another engine counts.
    """
    if why := obstacle():
        pytest.skip(f"no hosts of our own: {why}")
    machine = tmp_path / "machine"
    machine.mkdir()
    python = make_venv(tmp_path / "executors", *EXECUTORS_NEED)
    endings = Counter[str]()
    with hosts(machine, python, SEED) as cluster:
        for number, fault in enumerate(plan(SEED, ROUNDS), 1):
            began = time.monotonic()
            orders, users = number * ORDERS, number * USERS
            happened, code, text = disturbed(cluster, fault, orders, users)
            ending = f"exit {code}" if happened else f"exit {code}, undisturbed"
            endings[ending] += 1
            print(f"round {number} of seed {SEED}: {fault}: {ending}, {time.monotonic() - began:.0f} s", flush=True)
            assert code == 0 or (happened and code in (1, 3)), text
            for stream, records in (("orders", orders), ("users", users)):
                rows, ids, last = cluster.rows(stream, tmp_path / f"{number}-{stream}")
                assert rows == ids, f"{stream} has rows twice after {fault}: {text}"
                assert last >= cluster.bookmark(stream), f"the bookmark of {stream} leads after {fault}: {text}"
                if code == 0:
                    assert (rows, last) == (records, records), f"{stream} after {fault}: {text}"
        orders, users = (ROUNDS + 1) * ORDERS, (ROUNDS + 1) * USERS
        with cluster.run(orders, users) as run:
            stdout, stderr = run.communicate(timeout=_ENDS_WITHIN)
        assert run.returncode == 0, stdout + stderr
        assert cluster.rows("orders", tmp_path / "orders") == (orders, orders, orders)
        assert cluster.rows("users", tmp_path / "users") == (users, users, users)
        assert cluster.left() == []
    print(dict(endings))


def disturbed(cluster: Hosts, fault: Fault, orders: int, users: int) -> tuple[bool, int, str]:
    """Run with a fault. Return whether it happened, the exit code, and what the run said."""
    if fault.moment == "recovery":
        die(cluster, orders, users)
    cluster.store.fault("hold", MOMENTS[fault.moment], times=1)
    run = cluster.run(orders, users, "--timeout", _RUN)
    try:
        happened = wait_until(cluster.store.held, run, _COMES_WITHIN)
        if happened:
            cluster.begin(fault)
        cluster.store.release()
        if happened:
            with suppress(subprocess.TimeoutExpired):
                run.wait(fault.seconds)
        cluster.restore()
        stdout, stderr = run.communicate(timeout=_ENDS_WITHIN)
        return happened, run.returncode, stdout + stderr
    finally:
        kill(run)
        cluster.store.clear()
        cluster.restore()


def die(cluster: Hosts, orders: int, users: int) -> None:
    """Have a run die in the middle of a commit."""
    cluster.store.fault("hold", MOMENTS["publish"], times=1)
    with cluster.run(orders, users) as run:
        wait_until(cluster.store.held, run, _COMES_WITHIN)
        kill(run)
        cluster.store.clear()
        run.communicate(timeout=_ENDS_WITHIN)


def kill(run: subprocess.Popen[str]) -> None:
    """SIGKILL the driver's process; its guards end tap and JVM."""
    if run.poll() is None:
        run.kill()
        run.wait()
