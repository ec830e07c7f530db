"""A disk that is full before the first commit: what is there is said, and a run on a disk with room is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import TAP

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS = f"""
pipelines:
  p:
    source: {{tap: {TAP}, config: {{seed: 1, streams: [{{name: users, records: 200000}}]}}}}
    destination: {{bucket: lake}}
"""
STEPS = """
mount -t tmpfs -o size=600k tmpfs lake || exit 77
head -c 100k /dev/zero > lake/ballast
bridge() { echo "== $*"; "$0" -m bridge "$@" 2>&1; echo "code $?"; }
bridge run p -q
bridge verify p
bridge recover p
rm lake/ballast
bridge verify p --repair
mount -o remount,size=60m lake
bridge run p -q
bridge verify p
"""


def steps(folder: Path) -> list[list[str]]:
    """The lines that each of the commands printed, the last one with its exit code."""
    (folder / "lake").mkdir()
    argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", STEPS, sys.executable]
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    except OSError:
        pytest.skip("there is no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody mount a filesystem in a namespace")
    return [part.splitlines()[1:] for part in done.stdout.split("== ")[1:]]


def test_a_disk_that_is_full_at_the_first_commit(tmp_path: Path) -> None:
    """Nothing is visible; `verify` names the files that wait to be deleted, and no commit that never was."""
    (tmp_path / "bridge.yaml").write_text(SETTINGS)
    failed, first, refused, repaired, loaded, whole = steps(tmp_path)
    assert (failed[-1], "the disk is full" in "".join(failed)) == ("code 3", True), failed
    assert "was left by a run that died" in first[0]
    assert first[-2].startswith("! 0 errors, ")
    assert "nothing is committed, so no reader sees a row; singer-bridge runs show p says how" in first[-2]
    assert (first[-1], "has written commit" in "".join(first)) == ("code 0", False), first
    assert (refused[-1], "free some space" in "".join(refused)) == ("code 3", True), refused
    assert repaired[-2].startswith("✓ all is well")
    assert (repaired[-1], loaded[-1]) == ("code 0", "code 0")
    assert "200,000 rows" in whole[-2]
