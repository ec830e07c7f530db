"""The order of the runs, and what is kept of each.

Runs are interleaved: every system once, then every system again, so that a machine that gets slower or warmer meets
them all. Before a run its input is read once (page cache) and dirty pages of the run before are flushed; its output is
counted after the clock has stopped, then deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .inputs import Input, prepare
from .ours import search_path
from .system import SMALL_RUN_RECORDS, Job, Launch, Rows, System
from .venvs import NotInstalled

RUN_LIMIT_SECONDS = 1800
_SUPERVISOR = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: a system and a size."""

    system: System
    records: int

    @property
    def title(self) -> str:
        """Names folders and logs."""
        return f"{self.system.name}-{self.records}"


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run. A failed one has an `error` and no part in any median."""

    system: str
    records: int
    repetition: int
    error: str = ""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    """User and system time of the command and everything it started, the tap included."""
    main_high_water_bytes: int = 0
    """The kernel's own peak of the command's process: for singer-bridge the orchestrator."""
    peak_rss_bytes: dict[str, int] = field(default_factory=dict)
    """Summed by kind of process (main, jvm, worker, tap, other), and `all` at one instant; sampled."""
    processes: dict[str, int] = field(default_factory=dict)
    cpu_by_kind: dict[str, float] = field(default_factory=dict)
    """CPU seconds by kind of process; sampled, so short of what each took in its last 0.1 s."""
    orphans_killed: int = 0
    rows: int | None = None
    distinct: int | None = None
    said: Any = None
    """What the command printed on stdout, where that is one JSON object."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Everything under one git-ignored folder."""

    home: Path

    @property
    def inputs(self) -> Path:
        return self.home / "input"

    @property
    def venvs(self) -> Path:
        return self.home / "venvs"

    @property
    def out(self) -> Path:
        return self.home / "out"

    @property
    def logs(self) -> Path:
        return self.home / "logs"


def plan(systems: Sequence[System], scale: float) -> list[Case]:
    """One case a system and size, in the order of the table. The small run is not scaled."""
    sizes = (
        (system, size if size <= SMALL_RUN_RECORDS else round(size * scale))
        for system in systems
        for size in system.records
    )
    return [Case(system, size) for system, size in sizes]


def prepare_all(cases: Sequence[Case]) -> dict[str, str]:
    """Installs what the cases need; what could not be installed, with the reason."""
    missing: dict[str, str] = {}
    for system in dict.fromkeys(case.system for case in cases):
        try:
            system.prepare()
        except (NotInstalled, OSError) as error:
            missing[system.name] = f"not installed: {error}"
    return missing


def inputs_of(cases: Sequence[Case], folders: Folders) -> dict[int, Input]:
    """The input of each size."""
    return {size: prepare(folders.inputs, size) for size in sorted({case.records for case in cases})}


def run_all(cases: Sequence[Case], inputs: dict[int, Input], folders: Folders, repeat: int) -> Iterator[Run]:
    """A B C, A B C, A B C."""
    for repetition in range(repeat):
        for case in cases:
            yield run_one(case, inputs[case.records], folders, repetition)


def run_one(case: Case, source: Input, folders: Folders, repetition: int) -> Run:
    """One run in an empty folder; whatever goes wrong becomes the run's `error`."""
    out = folders.out / case.title
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    job = Job(source, out.resolve())
    source.warm()
    os.sync()
    base = Run(case.system.name, case.records, repetition)
    log = folders.logs / f"{case.title}-{repetition}"
    try:
        run = _supervised(base, case.system.launch(job), log)
        return run if run.error else _counted(run, case.system, job)
    except (OSError, ValueError, NotInstalled) as error:
        return replace(base, error=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _supervised(run: Run, launch: Launch, log: Path) -> Run:
    log.parent.mkdir(parents=True, exist_ok=True)
    report, stdout, stderr = (log.with_name(f"{log.name}.{end}") for end in ("json", "stdout", "stderr"))
    report.unlink(missing_ok=True)
    arguments = [report, launch.stdin or "-", stdout, stderr, RUN_LIMIT_SECONDS, "--", *launch.command]
    environment = {**os.environ, "PATH": search_path(), **launch.environment}
    command = [sys.executable, str(_SUPERVISOR), *map(str, arguments)]
    supervisor = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        return replace(run, error=f"not started: {supervisor.stderr.strip()[-300:]}")
    measured = json.loads(report.read_text(encoding="utf-8"))
    code = measured.pop("exit_code")
    error = f"exit {code}: {_last_words(stderr, stdout)}" if code else ""
    return replace(run, error=error, said=_json_object(stdout), **measured)


def _counted(run: Run, system: System, job: Job) -> Run:
    if not system.counts_rows:
        return run
    rows: Rows = system.rows(job)
    return replace(run, rows=rows.count, distinct=rows.distinct)


def _last_words(*logs: Path) -> str:
    texts = (log.read_text(encoding="utf-8", errors="replace").strip() for log in logs)
    return " | ".join(" ".join(text[-300:].split()) for text in texts if text)


def _json_object(path: Path) -> Any:
    with contextlib.suppress(ValueError):
        value = json.loads(path.read_bytes())
        return value if isinstance(value, dict) else None
    return None
