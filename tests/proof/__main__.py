"""`python -m tests.proof`: every system, or those named by `--only`, into the table of docs/proof.md."""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.venvs import NotInstalled

from .databases import BridgeLog, BridgePostgres, DltSqlFiles, DltSqlMerge, Olake, OlakeCdc, Sling
from .faucet import FaucetFiles, FaucetUpsert
from .faults import FullDisk, Restart, Twice
from .harness import Siege, Stuck
from .others import DataSpoc, DltFiles, DltMerge
from .ours import BridgeRun, BridgeRunStopped, BridgeTarget, BridgeTargetStopped
from .page import PAGE, Row, replaced, row
from .pipes import (
    Meltano,
    MeltanoDuckdb,
    SdkSink,
    TargetCsv,
    TargetCsvStopped,
    TargetDuckdb,
    TargetDucklake,
    TargetJsonl,
)
from .system import System, struck_by

HOME = Path(__file__).resolve().parents[2] / ".bench"
KILLS = int(os.environ.get("KILLS") or 10)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))

OURS: tuple[type[System], ...] = (BridgeRun, BridgeRunStopped, BridgeTarget, BridgeTargetStopped)
_PEERS: tuple[type[System], ...] = (
    *(DataSpoc, FaucetFiles, FaucetUpsert, TargetCsv, TargetCsvStopped, SdkSink, Meltano, MeltanoDuckdb),
    *(TargetJsonl, TargetDuckdb, TargetDucklake),
    *(DltFiles, DltMerge),
)
_OVER_POSTGRES: tuple[type[System], ...] = (BridgePostgres, DltSqlMerge, Sling, Olake)
"""Each of them meets every fault."""
_KILLED: tuple[type[System], ...] = (BridgeLog, DltSqlFiles, OlakeCdc)
"""Those beside them are only killed: another way of the same tools."""
_FAULTS = (Restart(), FullDisk(), Twice())
"""What each of those meets, beside kills."""


def systems() -> list[System]:
    """In the order of the table."""
    venvs = HOME / "venvs"
    struck = [kind for system in _OVER_POSTGRES for kind in (system, *[struck_by(system, fault) for fault in _FAULTS])]
    return [made(venvs) for made in (*OURS, *_PEERS, *struck, *_KILLED)]


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where singer-bridge lost or doubled a row, or a system could not be installed or got stuck."""
    every = systems()
    names = [system.name for system in every]
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    options = parser.parse_args(arguments)
    chosen = [system for system in every if not options.only or system.name in options.only]
    print(f"SEED={SEED} KILLS={KILLS}; files, logs and environments are in {HOME}", flush=True)
    return max([_prove(system, names) for system in chosen])


def _prove(system: System, order: list[str]) -> int:
    """Try one system, write its row, say what it is."""
    try:
        system.install()
        strikes = min(KILLS, system.fault.at_most)
        chance = random.Random(f"{SEED}/{system.name}")
        with system.source.opened(HOME / "proof" / system.name) as source:
            outcome = Siege(system, source, chance).carry_out(strikes)
    except (NotInstalled, Stuck) as error:
        print(f"{system.name}: {error}", file=sys.stderr, flush=True)
        return 1
    line = row(system, outcome, KILLS, SEED)
    _write(line, order)
    print(line, flush=True)
    return int(system.name.startswith("bridge-") and not outcome.final.exact)


def _write(line: Row, order: list[str]) -> None:
    """Put a row into the page; systems may be tried at the same time, by several calls of this program."""
    with PAGE.open("r+", encoding="utf-8") as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        text = replaced(page.read(), line, order)
        page.seek(0)
        page.truncate()
        page.write(text)


if __name__ == "__main__":
    sys.exit(main())
