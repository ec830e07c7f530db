"""Tables, times and sums for people: what a terminal has no room for gives way, and nothing is cut that matters."""

from __future__ import annotations

import pytest
from click import unstyle

from bridge.cli.run.reporter import summary
from bridge.cli.show import count_of, moment, print_table
from bridge.lake.commit.state_file import short_bookmark
from bridge.load.run.result import Counts, Result

RUN = "20261120T163504Z-z9m2"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal; its width is the variable COLUMNS."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in unstyle(capsys.readouterr().out).splitlines()]


def test_what_matters_less_gives_way_first(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns go in the order of `less`, no more of them than must, and are named; ids and numbers stay whole."""
    columns, row = ["run", "files", "rows", "kind"], [RUN, "1,234", "56,789", "state"]
    for width, shown in ((60, columns), (40, ["run", "rows", "kind"]), (34, ["run", "rows"]), (10, ["run", "rows"])):
        terminal.setenv("COLUMNS", str(width))
        print_table(columns, [row], right=["files", "rows"], less=["files", "kind"])
        head, line, *note = lines(capsys)
        assert (head.split(), line.split()) == (shown, [row[columns.index(name)] for name in shown])
        hidden = [name for name in columns if name not in shown]
        assert note == ([f"not shown: {', '.join(hidden)}; a wider terminal has room"] if hidden else [])


def test_an_empty_column_is_not_missed(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A column without content that gives way is not named."""
    terminal.setenv("COLUMNS", "10")
    print_table(["run", "reason"], [[RUN, ""]], less=["reason"])
    assert len(lines(capsys)) == 2


def test_text_folds_at_words(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A sentence takes several lines beside a number that stays in one."""
    print_table(["run", "error"], [[RUN, "the tap failed again"]], folds=["error"])
    assert lines(capsys) == ["run                     error", f"{RUN}   the tap failed", f"{'':24}again"]


def test_a_long_text_takes_no_column_that_fits(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence that can be read at some width has other columns give way for that width only."""
    for width, shown in ((70, ["run", "files", "error"]), (50, ["run", "error"])):
        terminal.setenv("COLUMNS", str(width))
        row = [RUN, "1,234", "word " * 40]
        print_table(["run", "files", "error"], [row], folds=["error"], less=["files"], readable=30)
        said = lines(capsys)
        assert said[0].split() == shown
        assert max(map(len, said)) <= width


def test_lines_are_whole_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads the table finds every column, and a row a line."""
    print_table(["run", "error"], [[RUN, "word " * 100]], folds=["error"], less=["run"])
    assert lines(capsys)[1:] == [f"{RUN}   {'word ' * 100}".rstrip()]


def test_a_summary_fits_into_80_columns(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The run's id has a line of its own; rejects are shown only where there are any."""
    terminal.setenv("COLUMNS", "80")
    counts = Counts("append-only", "the catalog says INCREMENTAL", committed=5000, files=1, bytes=79_000)
    facts = {"total": 25.0, "load": 24.0, "waiting": 15.0}
    summary(Result(RUN, "shop", status="success", commits=1, streams={"public-orders": counts}, seconds=facts))
    said = lines(capsys)
    assert said == [
        "stream          load method                                  records       size",
        "public-orders   append-only (the catalog says INCREMENTAL)     5,000   77.1 KiB",
        "not shown: files; a wider terminal has room",
        "",
        "✓ success  5,000 records in 25 s, 556 records/s, 1 commit",
        f"  run {RUN}",
    ]
    counts.rejected = 7
    summary(Result(RUN, "shop", status="success", streams={"public-orders": counts}))
    assert "rejected" in lines(capsys)[0]


def test_a_summary_says_how_bookmarks_moved(capsys: pytest.CaptureFixture[str]) -> None:
    """From where to where, by whichever name the STATE has for a stream; of many streams the first ones."""
    names = [f"s{n:02}" for n in range(12)]
    streams = {name: Counts("append-only", "as set", (f"public-{name}", name)) for name in names}
    before = {"bookmarks": {"public-s00": {"replication_key_value": 3000}}}
    after = {"bookmarks": {f"public-{name}": {"replication_key_value": 3100} for name in names}}
    summary(Result(RUN, "shop", status="success", streams=streams, state_before=before, state=after))
    moves = [line for line in lines(capsys) if line.startswith(("s0", "and")) and "as set" not in line]
    assert moves[:2] == ["s00: from 3000 to 3100", "s01: from the beginning to 3100"]
    assert moves[-1] == "and 2 more: singer-bridge state list shop"


def test_a_bookmark_without_a_position_did_not_move(capsys: pytest.CaptureFixture[str]) -> None:
    """What taps of databases write for a FULL_TABLE stream; a position of other notes is shown without them."""
    full, log = {"last_replication_method": "FULL_TABLE", "version": 17, "xmin": None}, {"lsn": 4711, "version": 17}
    marks = {"sdk": {}, "wise": full, "log": log, "version": {"version": 17}}
    streams = {name: Counts("overwrite", "as set") for name in marks}
    summary(Result(RUN, "shop", status="success", streams=streams, state={"bookmarks": marks}))
    assert [line for line in lines(capsys) if ": from" in line] == ["log: from the beginning to 4711"]


def test_a_full_run_moved_from_the_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    """Also to where the bookmark was before; of a bookmark with parts each that moved."""
    parts = {"partitions": [{"context": {"repo": repo}, "replication_key_value": 5} for repo in "ab"]}
    state = {"bookmarks": {"orders": {"replication_key_value": 5}, "issues": parts}}
    for reason, expected in (
        ("--full", ["orders: from the beginning to 5", *(f"issues (repo {r}): from the beginning to 5" for r in "ab")]),
        ("as set", []),
    ):
        streams = {name: Counts("overwrite", reason) for name in ("orders", "issues")}
        summary(Result(RUN, "shop", status="success", streams=streams, state_before=state, state=state))
        assert [line for line in lines(capsys) if ": from" in line] == expected


def test_one_time_format() -> None:
    """UTC, to the second, from whatever zone and precision it is kept in."""
    for at in ("2026-11-20T20:41:33Z", "2026-11-20T20:41:33.123456+00:00", "2026-11-20T22:41:33+02:00"):
        assert moment(at) == "2026-11-20 20:41:33Z"
    assert moment("") == moment(None) == ""


def test_numbers_of_things() -> None:
    """One is not several."""
    assert [count_of(number, "commit") for number in (0, 1, 2000)] == ["0 commits", "1 commit", "2,000 commits"]


def test_a_run_that_failed_says_what_it_read(capsys: pytest.CaptureFixture[str]) -> None:
    """What was read and not committed is said; of a success whose rejects explain the difference it is not."""
    counts = Counts("append-only", "as set", records=5000, committed=3000)
    summary(Result(RUN, "shop", status="failed", streams={"orders": counts}, commits=2, seconds={"total": 3.2}))
    text = " ".join(lines(capsys))
    assert "stream   load method             read   records   rejected   files   size" in text
    assert "5,000     3,000" in text
    assert "failed  5,000 records read, 3,000 committed in 3.2 s, 938 records/s, 2 commits" in text
    counts = Counts("append-only", "as set", records=5000, committed=4999, rejected=1)
    summary(Result(RUN, "shop", status="success", streams={"orders": counts}, seconds={"total": 3.2}))
    text = " ".join(lines(capsys))
    assert " read " not in text
    assert "4,999 records in 3.2 s" in text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([9, 10, 8], "3 partitions, up to 10"),
        (["2026-01-02", "2026-01-10T00:00:00Z"], "2 partitions, up to 2026-01-10T00:00:00Z"),
        (["b", "a"], "2 partitions"),
        ([None, 3], "2 partitions, up to 3"),
        ([None], "1 partition"),
    ],
)
def test_a_bookmark_by_partitions(values: list[object], text: str) -> None:
    """How many there are; the highest value where they can be compared, never a part of their JSON."""
    parts = [{"context": {"n": n}, "replication_key_value": value} for n, value in enumerate(values)]
    assert short_bookmark({"partitions": parts}) == text
