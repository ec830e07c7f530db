"""`completion`: the shell completes verbs, flags and pipelines, and is never kept waiting."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import Typed, children_seconds

SETTINGS = """
include: [more/*.yaml]
environments: {prod: {}, preview: {}}
pipelines:
  flights: {source: {tap: tap-x, config: {password: "${NOT_SET}"}}, destination: {bucket: lake}}
  fleet: {source: {}}
  users: {half: written
"""


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    """A bridge.yaml as it is while somebody works on it: a variable is not set, a pipeline is not finished."""
    (folder / "bridge.yaml").write_text(SETTINGS.replace("  users: {half: written\n", ""))
    (folder / "more").mkdir()
    (folder / "more" / "fleet.yaml").write_text("pipelines: {fleet2: {}}")


def complete(*words: str) -> list[str]:
    """What the shell is offered after these words, of which the last one is not finished."""
    asked = {
        "_SINGER_BRIDGE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": f"{len(words) - 1}",
    }
    command = [str(Path(sys.executable).with_name("singer-bridge"))]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_names_verbs_and_flags_are_completed() -> None:
    """Pipelines by what the file says, included files too, those on the line already left out; verbs; flags; values."""
    assert complete("singer-bridge", "run", "fl") == ["flights", "fleet", "fleet2"]
    assert complete("singer-bridge", "run", "flights", "fl") == ["fleet", "fleet2"]
    assert complete("singer-bridge", "runs", "list", "fli") == ["flights"]
    assert complete("singer-bridge", "runs", "list", "--env", "pr") == ["prod", "preview"]
    assert complete("singer-bridge", "ru") == ["run", "runs"]
    assert complete("singer-bridge", "run", "--max") == ["--max-records"]
    assert complete("singer-bridge", "run", "--log-format", "j") == ["json"]


def test_nothing_to_complete_is_no_error(folder: Path) -> None:
    """Without a file, with half a file, after a verb that is not there: nothing is offered, nothing is printed."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    assert complete("singer-bridge", "run", "fl") == []
    (folder / "bridge.yaml").unlink()
    assert complete("singer-bridge", "run", "fl") == []
    assert complete("singer-bridge", "recover", "fl") == []


def test_another_file_is_asked_where_it_is_given(folder: Path) -> None:
    """`-f` on the line, or its variable, says whose pipelines are meant."""
    (folder / "other.yaml").write_text("pipelines: {elsewhere: {}}")
    assert complete("singer-bridge", "run", "-f", "other.yaml", "e") == ["elsewhere"]


def test_a_shell_does_not_wait() -> None:
    """Names come in the time of a key stroke or two, never at the price of a JVM."""
    with children_seconds() as seconds:
        complete("singer-bridge", "run", "fl")
    assert seconds() < 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_reads(shell: str, typed: Typed, tmp_path: Path) -> None:
    """What is printed is a script for that shell which asks us for completions."""
    done = typed(f"completion {shell}")
    assert done.code == 0
    assert "_SINGER_BRIDGE_COMPLETE" in done.out
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(done.out)
        subprocess.run([found, "-n", str(tmp_path / "script")], check=True, timeout=30)


def test_a_shell_that_nobody_knows(typed: Typed) -> None:
    """Another shell is wrong usage."""
    assert typed("completion tcsh").code == 2
