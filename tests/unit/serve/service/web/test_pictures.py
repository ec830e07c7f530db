"""Pictures have the shape of their figures, and say them in words."""

from __future__ import annotations

from bridge.read.query.growth import Size
from bridge.serve.service.web.pictures.steps import pictures


def sizes(*rows: int) -> list[Size]:
    return [Size(n, f"2026-01-01T00:00:{n:02}.000+00:00", count, count * 1024) for n, count in enumerate(rows, 1)]


def test_a_step_for_each_commit() -> None:
    """As high as its figure, from zero; each names its commit; the picture says the first, the last and the highest."""
    rows, size = pictures(sizes(1000, 2000, 0, 500))
    assert rows.line == "M0 51.0V51.0H250.0V2.0H500.0V100.0H750.0V75.5H1000.0"
    assert rows.area == f"{rows.line}V100H0Z"
    assert [(step.x, step.width, step.commit) for step in rows.steps] == [(n * 250, 250, n + 1) for n in range(4)]
    assert rows.steps[1].words == "commit 2, 2026-01-01 00:00:02Z: 2,000"
    assert (rows.latest, rows.most) == ("500", "2,000")
    assert rows.words == "Rows over the last 4 commits: 1,000 after commit 1, 500 after commit 4, at most 2,000"
    assert (size.of, size.latest, size.most) == ("Size", "500.0 KiB", "2.0 MiB")


def test_few_and_many_commits() -> None:
    """One commit has no history; of more than a hundred the latest are shown; empty tables lie at the bottom."""
    assert pictures([]) == pictures(sizes(5)) == []
    assert pictures(sizes(0, 0))[0].line == "M0 100.0V100.0H500.0V100.0H1000.0"
    many = [Size(n, "2026-01-01T00:00:00+00:00", n, n) for n in range(1, 151)]
    assert [step.commit for step in pictures(many)[0].steps] == list(range(51, 151))
