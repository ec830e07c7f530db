"""A campaign that fails, hangs or is asked for by a wrong name; the table that it writes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from . import __main__ as nightly
from .campaigns import CAMPAIGNS, Campaign
from .page import BEGIN, END, PAGE, Row, replaced

_TAIL = "== 3 passed, 1 failed in 2.51s (0:00:02) ==\n"


def _row(campaign: str, ended: str = "green") -> Row:
    return Row(campaign, "much", "2026-01-01", "abc", ended, "3", f"`make nightly ARGS={campaign}`")


def test_the_words_of_pytest_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"= 9 passed in 1s =\nmore\n{_TAIL}make: *** [Makefile:1: test] Error 1\n", encoding="utf-8")
    assert nightly.ending(log, 2) == "**exit code 2**: 3 passed, 1 failed"
    assert nightly.ending(log, nightly.TOO_LONG) == "**not in time**: 3 passed, 1 failed"
    log.write_text("nothing of pytest", encoding="utf-8")
    assert nightly.ending(log, 0) == "green"


def test_time_is_up_for_all_that_it_started(tmp_path: Path) -> None:
    """Also for a process in a group of its own, as the tests' services are."""
    pid = tmp_path / "pid"
    child = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    began = time.monotonic()
    code = nightly.run([sys.executable, "-c", parent], tmp_path / "log", 3)
    assert code == nightly.TOO_LONG
    assert time.monotonic() - began < 50  # no wait for the sleep, and no SIGKILL was needed
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_row_takes_its_place() -> None:
    text = f"before\n{BEGIN}{END}\nafter\n"
    for row in (_row("crash"), _row("test", "red"), _row("test")):
        text = replaced(text, row)
    head, lines = text.partition(END)[0].splitlines()[:4], text.partition(END)[0].splitlines()[4:]
    assert head[0] == "before"
    assert [line.split(" | ")[0] for line in lines] == ["| test", "| crash"]
    assert "red" not in text
    assert text.endswith(f"{END}\nafter\n")


def test_the_page_has_room_for_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert BEGIN in text
    assert END in text


def test_a_name_that_no_campaign_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        nightly.main(["tests"])
    assert refused.value.code == 2
    assert "there is no campaign 'tests'; there are test, taps" in capsys.readouterr().err


@pytest.mark.parametrize("campaign", CAMPAIGNS, ids=lambda campaign: campaign.name)
def test_each_campaign_is_a_verb(campaign: Campaign) -> None:
    makefile = (nightly.ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"\n{campaign.verb}: " in makefile
    assert campaign.command(7)[:2] == ["env", "SEED=7"]
