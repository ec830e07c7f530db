"""How large tables were after each commit: as the log says, with as few reads as the picture has commits."""

from __future__ import annotations

from bridge.lake.log import Beginning, Log
from bridge.lake.pipeline_state import PipelineState
from bridge.read.query.growth import LatestCommits
from tests.support.lake import FIRST, Lake


def sizes(log: Log, back: int, stream: str | None = None) -> list[tuple[int, int, int]]:
    latest = LatestCommits.of(log, log.latest(), back)
    return [(size.commit, size.rows, size.bytes) for size in latest.sizes(stream)]


def test_after_each_commit(lake: Lake) -> None:
    """Rows and bytes of all tables; of one table only where it changed. Removed files no longer count."""
    committer, log = lake.open(FIRST), Log(lake.storage, "p")
    assert sizes(log, 10) == []
    lake.load(committer, {"n": 1})
    second = lake.load(committer, {"n": 2})
    other = lake.pending(committer.generation) | {"rows": 5}
    committer.commit(PipelineState({"n": 3}), [lake.entry(other, stream="t")])
    committer.commit(PipelineState({"n": 4}), [lake.entry(removes=(second["name"],))])
    start = [(1, 1, 4), (2, 2, 12)]
    assert sizes(log, 10) == [*start, (3, 7, 24), (4, 6, 16)]
    assert sizes(log, 10, "s") == [*start, (4, 1, 4)]
    assert sizes(log, 10, "t") == [(3, 5, 12)]
    assert sizes(log, 10, "nothing") == []


def test_a_long_history(lake: Lake) -> None:
    """The latest commits are read, from a record with a snapshot on; so it is where the log begins later."""
    committer, log = lake.open(FIRST), Log(lake.storage, "p")
    for number in range(230):
        lake.load(committer, {"n": number})
    latest = LatestCommits.of(log, 230, 50)
    assert (len(latest.records), latest.is_whole) == (131, False)
    assert (
        sizes(log, 50, "s")
        == sizes(log, 500, "s")[-131:]
        == [(n, n, sum(4 * size for size in range(1, n + 1))) for n in range(100, 231)]
    )
    log.begin_at(Beginning(200, 200))
    latest = LatestCommits.of(log, 230, 500)
    assert (len(latest.records), latest.is_whole) == (31, True)
    assert sizes(log, 500) == [(n, n, sum(4 * size for size in range(1, n + 1))) for n in range(200, 231)]
