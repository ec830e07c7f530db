"""`recover`: what the opening of a run repairs, without the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import PipelineHeld
from bridge.lake.commit.open import Recovered, recover
from bridge.lake.lease import last_lease
from tests.support.lake import FIRST, Lake, closed, holding, unpublished


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_where_nothing_ever_ran(lake: Lake) -> None:
    """A bucket without the pipeline stays as it is: nobody makes a lake of it for this."""
    assert recover(lake.storage, "p") == Recovered(0)
    assert not lake.root.exists()


def test_after_a_run_that_ended_well(lake: Lake) -> None:
    """There is nothing to do, and no commit is made."""
    lake.load(lake.open(FIRST), {"n": 1})
    recover(lake.storage, "p")
    kinds = lake.kinds
    done = recover(lake.storage, "p")
    assert done == Recovered(2)
    assert done.sentence.startswith("nothing to do")
    assert lake.kinds == kinds


def test_a_commit_is_finished(lake: Lake) -> None:
    """What a dead run had committed becomes visible with its STATE, and the next run needs no fence for it."""
    old = lake.load(lake.open(FIRST), {"n": 1})
    file, leftover = lake.pending(1), lake.pending(1)
    with holding(lake, "20261120T133501Z-k3f9"):
        unpublished(lake, {"n": 2}, [lake.entry(file, removes=(old["name"],))], closed(1))
        (lake.root / ".bridge/p/lease.json").rename(lake.root / "dead")
    (lake.root / "dead").rename(lake.root / ".bridge/p/lease.json")
    lease = json.loads((lake.root / ".bridge/p/lease.json").read_bytes()) | {"closed": None}
    (lake.root / ".bridge/p/lease.json").write_text(json.dumps(lease))
    done = recover(lake.storage, "p")
    assert done == Recovered(3, "20261120T133501Z-k3f9", 2)
    assert (lake.visible(), lake.state, lake.waiting) == ({file["name"]}, {"n": 2}, set())
    assert lake.manifest() == lake.visible()
    assert leftover["name"] not in lake.waiting
    assert last_lease(lake.storage, "p")["closed"] == 3
    assert recover(lake.storage, "p").sentence.startswith("nothing to do")


def test_a_commit_is_taken_back(lake: Lake) -> None:
    """A commit that lost a file before it was visible is taken back, and that is said; it is not called finished."""
    old = lake.load(lake.open(FIRST), {"n": 1})
    file = lake.pending(1)
    unpublished(lake, {"n": 2}, [lake.entry(file)], closed(1))
    (lake.root / file["source"]).unlink()
    done = recover(lake.storage, "p")
    assert (done.finished, done.head) == (None, 4)
    assert "commit 2 had lost 1 file(s)" in done.notes[0]
    assert (lake.visible(), lake.state) == ({old["name"]}, {"n": 1})


def test_an_edited_state_counts(lake: Lake) -> None:
    """A STATE that was written by hand is recorded, as the next run would do it."""
    lake.load(lake.open(FIRST), {"n": 1})
    recover(lake.storage, "p")
    lake.edit_state('{"n": 7}')
    done = recover(lake.storage, "p")
    assert not done.sentence.startswith("nothing to do")
    assert not done.died
    assert "edited by hand" in done.notes[0]
    assert lake.kinds[-1] == "state"


def test_a_live_run_is_left_alone(lake: Lake) -> None:
    """While a run holds the pipeline nothing is touched."""
    lake.load(lake.open(FIRST), {"n": 1})
    with holding(lake, "run"):
        before = lake.everything()
        with pytest.raises(PipelineHeld):
            recover(lake.storage, "p")
        assert lake.everything() == before


def test_it_is_quick() -> None:
    """Neither Spark nor Arrow is loaded for it, nor what speaks to S3."""
    code = (
        "import sys, bridge.cli.repair.recover\n"
        "from bridge.cli import cli\n"
        "cli.main(['recover', '--to', sys.argv[1], '--name', 'x'], standalone_mode=False)\n"
        "print(sorted({'pyspark', 'pyarrow', 'boto3', 'py4j'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code, "nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "x: nothing to do, nothing was committed yet\n[]\n"
