"""`python -m tests.nightly`: every campaign, or those named, with time limits, into the table of docs/proof.md."""

from __future__ import annotations

import argparse
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import psutil

from .campaigns import CAMPAIGNS, Campaign
from .page import PAGE, Row, replaced

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".nightly"
TOO_LONG = 124
"""The exit code of `timeout`, for a campaign that was ended by its limit."""
_GRACE_SECONDS = 60
_SUMMARY = re.compile(r"=+ (?P<counts>\d+ .*) in [\d.]+s.* =+")
"""The last line of pytest, whose time we have from the clock."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where one failed, could not start or took too long. The others run all the same."""
    names = [campaign.name for campaign in CAMPAIGNS]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="the same plan again")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.only} - {*names}):
        parser.error(f"there is no campaign {unknown[0]!r}; there are {', '.join(names)}")
    print(f"SEED={options.seed}; output is in {LOGS.name}/", flush=True)
    codes = [_carry_out(one, options.seed) for one in CAMPAIGNS if not options.only or one.name in options.only]
    return int(any(codes))


def _carry_out(campaign: Campaign, seed: int) -> int:
    """Run one campaign, write its row, and print that."""
    LOGS.mkdir(exist_ok=True)
    log = LOGS / f"{campaign.name}.log"
    began, tree = time.monotonic(), _tree()
    code = run(campaign.command(seed), log, campaign.minutes * 60)
    minutes = (time.monotonic() - began) / 60
    day = datetime.now(timezone.utc).date().isoformat()
    row = Row(campaign.name, campaign.tries, day, tree, ending(log, code), f"{minutes:.0f}", repeat(campaign, seed))
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), row), encoding="utf-8")
    print(row, flush=True)
    return code


def run(command: Sequence[str], log: Path, seconds: float) -> int:
    """The exit code of a command whose output goes to a file; it is ended with all that it started when time is up."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TOO_LONG
        finally:
            _end(process)


def ending(log: Path, code: int) -> str:
    """How a campaign ended, in the words of pytest if it is one."""
    counts = _SUMMARY.findall(log.read_text(encoding="utf-8", errors="replace"))
    words = {0: "green", TOO_LONG: "**not in time**"}.get(code, f"**exit code {code}**")
    return ": ".join([words, *counts[-1:]])


def repeat(campaign: Campaign, seed: int) -> str:
    """Return what starts the campaign again with the same plan."""
    return f'`make nightly ARGS="--seed {seed} {campaign.name}"`'


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to whatever runs below it, a minute, then SIGKILL."""
    if process.poll() is not None:
        return
    whole = psutil.Process(process.pid)
    family = [whole, *whole.children(recursive=True)]
    for member in family:
        _send(member, signal.SIGTERM)
    _, left = psutil.wait_procs(family, _GRACE_SECONDS)
    for member in left:
        _send(member, signal.SIGKILL)
    process.wait()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def _tree() -> str:
    """The commit, with a `+` where files are changed."""
    line = ["git", "describe", "--always", "--abbrev=8", "--dirty=+"]
    return subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout.strip() or "no commit"


if __name__ == "__main__":
    sys.exit(main())
