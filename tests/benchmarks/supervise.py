"""Runs one command and says what it cost: wall time, CPU seconds of every process it started, peak memory by kind.

A small process of its own per run, so that nothing is shared between runs:
`python supervise.py REPORT.json STDIN|- STDOUT STDERR TIMEOUT_SECONDS -- COMMAND...`.

CPU is what the kernel charged to all descendants. On Linux the supervisor is their sub-reaper: a JVM that outlives its
Python parent is inherited, waited for and counted. Spark's Python workers are not: their daemon ignores SIGCHLD, and
the kernel then charges nobody for what they took, so theirs is what the last look at each found, and added.

Memory is resident memory, sampled every 0.1 s and summed by kind: forked Python workers share pages with their daemon,
so sums over several workers overstate what they take. For the command's own process the kernel's high-water mark is
read too: a peak between two samples is not missed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.1
ORPHAN_SECONDS = 15.0
"""How long processes that outlive the command are waited for before they are killed (and the report says so)."""

_PR_SET_CHILD_SUBREAPER = 36
_WORKER_MODULES = ("pyspark.daemon", "pyspark/daemon", "pyspark.worker", "pyspark/worker")


def main(arguments: list[str]) -> int:
    """Exit code of the command, 124 if it was stopped by the time limit; the report is written either way."""
    report, stdin, stdout, stderr, timeout = arguments[:5]
    _become_subreaper()
    with (
        open(os.devnull if stdin == "-" else stdin, "rb") as source,
        open(stdout, "wb") as out,
        open(stderr, "wb") as err,
    ):
        started = time.monotonic()
        command = subprocess.Popen(arguments[6:], stdin=source, stdout=out, stderr=err, start_new_session=True)
        sampler = Sampler(command.pid)
        sampler.start()
        limit = threading.Timer(float(timeout), os.killpg, (command.pid, signal.SIGKILL))
        limit.start()
        code = command.wait()
        wall = time.monotonic() - started
    if code == -signal.SIGKILL and wall >= float(timeout):
        code = 124
    limit.cancel()
    sampler.stop()
    orphans = _reap()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = {
        "exit_code": code,
        "wall_seconds": wall,
        "cpu_seconds": usage.ru_utime + usage.ru_stime + sampler.worker_seconds,
        "orphans_killed": orphans,
        **sampler.peaks(),
    }
    Path(report).write_text(json.dumps(measured), encoding="utf-8")
    return code


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Sampler(threading.Thread):
    """Looks at all descendants every 0.1 s while the command runs; the main thread sleeps in the kernel meanwhile."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._over = threading.Event()
        self._kinds: dict[int, str] = {}
        self._rss: dict[str, int] = defaultdict(int)
        self._processes: dict[str, int] = defaultdict(int)
        self._high_water = 0
        self._cpu: dict[int, tuple[str, float]] = {}
        self._workers: set[int] = set()

    @property
    def worker_seconds(self) -> float:
        """CPU of Spark's Python workers, but not of the daemon that starts them."""
        return sum(self._cpu[pid][1] for pid in self._workers)

    def run(self) -> None:
        """Until `stop`."""
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def stop(self) -> None:
        """Returns when the last look is over."""
        self._over.set()
        self.join()

    def peaks(self) -> dict[str, object]:
        """Peak of the summed resident bytes of each kind, `all` of them together, most processes at a time, and CPU
        seconds of each kind by the last look at each process.
        """
        main = self._high_water or self._rss["main"]
        cpu: dict[str, float] = defaultdict(float)
        for kind, seconds in self._cpu.values():
            cpu[kind] += seconds
        return {
            "peak_rss_bytes": dict(self._rss),
            "processes": dict(self._processes),
            "main_high_water_bytes": main,
            "cpu_by_kind": cpu,
        }

    def _look(self) -> None:
        sums: dict[str, int] = defaultdict(int)
        numbers: dict[str, int] = defaultdict(int)
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                kind = self._kind(process)
                sums[kind] += process.memory_info().rss
                times = process.cpu_times()
                self._cpu[process.pid] = kind, times.user + times.system
                if kind == "worker" and self._kind(process.parent()) == "worker":
                    self._workers.add(process.pid)
                numbers[kind] += 1
        for kind, rss in (*sums.items(), ("all", sum(sums.values()))):
            self._rss[kind] = max(self._rss[kind], rss)
        for kind, number in numbers.items():
            self._processes[kind] = max(self._processes[kind], number)
        self._high_water = max(self._high_water, _high_water_bytes(self._root))

    def _kind(self, process: psutil.Process) -> str:
        """Only a settled answer is remembered: between fork and exec a child still looks like its parent."""
        if process.pid == self._root:
            return "main"
        if process.pid not in self._kinds and (kind := kind_of(process.cmdline())) != "other":
            self._kinds[process.pid] = kind
        return self._kinds.get(process.pid, "other")


def kind_of(words: list[str]) -> str:
    """`jvm`, `worker`, `tap` or `other`.

    Both the JVM's arguments and the shell script that becomes the JVM name pyspark's folder, so a worker is known by
    its module only.
    """
    if words and Path(words[0]).name == "java":
        return "jvm"
    line = " ".join(words)
    if any(module in line for module in _WORKER_MODULES):
        return "worker"
    return "tap" if "tap-replay" in line or "tap_replay" in line else "other"


def _high_water_bytes(pid: int) -> int:
    """The kernel's peak of resident memory of one process; 0 where the system does not tell or the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0


def _reap() -> int:
    """Waits for every process the command left behind, so that its CPU counts; kills what does not end. How many."""
    psutil.wait_procs(_descendants(), timeout=ORPHAN_SECONDS)
    killed = 0
    while living := _descendants():
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
        psutil.wait_procs(living, timeout=1)
    return killed


def _descendants() -> list[psutil.Process]:
    """Those still alive; a zombie of ours is collected on the way."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return psutil.Process().children(recursive=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
