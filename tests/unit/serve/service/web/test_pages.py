"""What the pages show is what the bucket says; each of them is there without JavaScript."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bridge.lake.log import Log
from bridge.lake.runs import log_key
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.busy_lake import record_run, write_settings
from tests.support.tables import INTEGER, STRING, Shop

from .conftest import AT, NOW, Open, Page


def test_the_overview_says_how_each_pipeline_stands(page: Page) -> None:
    """Last run, rows, next run, and a bar for each of the latest runs; one that never ran says so."""
    page.runs.next["shop"] = datetime.now(timezone.utc) + timedelta(hours=2, minutes=1)
    html = page.seen("/")
    rows = {row.split("</a>")[0].rpartition(">")[2]: row for row in html.split("<tr id=")[1:]}
    assert list(rows) == ["shop", "quiet", "failing"]
    assert "in 2 h" in rows["shop"]
    assert ">31<" in rows["shop"], "the rows that its table has"
    assert "never ran" in rows["quiet"]
    assert 'class="status failed"' in rows["failing"]
    assert "latest runs: 3 success, 1 failed" in rows["failing"]
    assert ">1,503<" in rows["failing"]


def test_the_overview_says_what_is_stale(root: Path, open_page: Open) -> None:
    """By the age of the last success, not of a bookmark or of a run that failed."""
    lake = LocalStorage(root / "lake")
    record_run(lake, "shop", datetime.now(timezone.utc) - timedelta(minutes=30), "success")
    record_run(lake, "failing", NOW - timedelta(minutes=1), "failed", rows=5)
    more = dict.fromkeys(("shop", "quiet", "failing"), ", stale_after: 1h")
    write_settings(root, [*more], **more)
    html = open_page().seen("/")
    rows = {row.split("</a>")[0].rpartition(">")[2]: row for row in html.split("<tr id=")[1:]}
    assert {name for name, row in rows.items() if ">stale<" in row} == {"failing"}


def test_pipelines_are_chosen_by_name_and_status(page: Page) -> None:
    """The filters are links and a form."""
    assert page.seen("/?q=QUI").count("<tr id=") == 1
    failing = page.seen("/?show=failing")
    assert failing.count("<tr id=") == 1
    assert 'href="/pipelines/failing"' in failing
    assert "No pipeline is like that" in page.seen("/?q=nothing")


def test_the_search_finds_tables(page: Page) -> None:
    """By a part of their name, with their rows and whose they are; none of a pipeline that the filter leaves out."""
    html = page.seen("/?q=RDER")
    assert 'href="/pipelines/shop/table?stream=orders">orders</a>' in html
    assert 'data-label="Rows">31<' in html
    assert "No pipeline is like that" not in html
    assert "stream=orders" not in page.seen("/?q=RDER&show=failing")
    assert "stream=orders" not in page.seen("/"), "only a search lists tables"


def test_a_first_visitor_reads_what_the_words_mean(page: Page) -> None:
    """A commit and a bookmark, in one line, where they first stand."""
    for path in ("/", "/pipelines/shop/commits", "/pipelines/shop/bookmarks"):
        html = page.seen(path)
        assert "A <b>commit</b> makes the rows of a run visible" in html
        assert "<b>bookmark</b>: the point from which the next run goes on" in html
    assert "A <b>commit</b>" not in page.seen("/?q=shop")


def test_pictures_over_the_commits(page: Page) -> None:
    """Of a pipeline, and of a table: rows and bytes after each commit, in words as well."""
    words = "Rows over the last 4 commits: 10 after commit 1, 31 after commit 4, at most 31"
    for path, of in (("/pipelines/shop", "shop"), ("/pipelines/shop/table?stream=orders", "orders")):
        html = page.get(path)
        assert f">Rows of {of}</title>" in html
        assert f">{words}</desc>" in html
        assert html.count("<rect ") == 8
    assert "<figure" not in page.get("/pipelines/quiet")


def test_a_failed_run_shows_what_it_read_and_committed(page: Page) -> None:
    """In all lists of runs, on its own page, and by the API."""
    run = record_run(page.lake, "quiet", NOW, "failed", rows=3000, read=5000, error={"message": "tap broke"})
    for path in ("/runs", "/pipelines/quiet", "/pipelines/quiet/runs", f"/pipelines/quiet/runs/{run}"):
        html = page.seen(path)
        assert 'data-label="Read">5,000<' in html, path
        assert 'data-label="Committed">3,000<' in html, path
    assert "of 5,000<" in page.seen("/")
    assert page.client.get(f"/api/pipelines/quiet/runs/{run}").json()["streams"]["s"]["read"] == 5000
    quiet = page.client.get("/api/pipelines/quiet").json()
    assert (quiet["read"], quiet["records"]) == (5000, 3000)


def test_runs_that_were_started_anywhere_are_shown(root: Path, open_page: Open) -> None:
    """A pipeline that only the bucket has appears, with its runs; it cannot be started from here."""
    record_run(LocalStorage(root / "lake"), "meltano-load", AT, "success", rows=77)
    page = open_page()
    html = page.seen("/")
    assert 'href="/pipelines/meltano-load"' in html
    assert 'href="/pipelines/meltano-load/run"' not in html
    assert "not in bridge.yaml" in page.get("/pipelines/meltano-load")
    assert "not in bridge.yaml" in page.get("/pipelines/meltano-load/run", 400)


def test_a_new_run_is_seen_at_the_next_look(page: Page) -> None:
    """What is kept of the last look is not used once the bucket has more."""
    assert "never ran" in page.get("/pipelines/quiet")
    run = record_run(page.lake, "quiet", NOW, "success", rows=5)
    assert run in page.get("/pipelines/quiet")
    record_run(page.lake, "quiet", NOW + timedelta(seconds=1), "failed", error={"message": "tap broke"})
    assert "tap broke" in page.get("/pipelines/quiet")


def test_a_pipeline_shows_streams_commits_and_failures(page: Page) -> None:
    """The page of a pipeline has all that `status`, `tables`, `state` and `commits` say of it."""
    html = page.get("/pipelines/shop")
    assert 'href="/pipelines/shop/table?stream=orders"' in html
    assert 'href="/pipelines/shop/rejects?stream=orders">1<' in html
    assert 'href="/pipelines/shop/commits/4"' in html
    failing = page.get("/pipelines/failing")
    assert "Failed once since 2026-05-01 10:00:00Z" in failing
    assert "the tap failed" in failing
    assert ">504</code>" in failing, "the bookmark"


def test_runs_are_listed_a_page_at_a_time(page: Page) -> None:
    """`Older` leads to what does not fit; nothing is left out or shown twice."""
    runs = [record_run(page.lake, "quiet", AT + timedelta(minutes=n), "interrupted") for n in range(60)][::-1]
    first = page.get("/pipelines/quiet/runs")
    assert [run for run in runs if run in first] == runs[:50]
    assert f"runs?before={runs[49]}" in first
    older = page.get(f"/pipelines/quiet/runs?before={runs[49]}")
    assert [run for run in runs if run in older] == runs[50:]
    assert runs[0] in page.seen("/runs")


def test_a_run_shows_its_error_and_its_log(page: Page) -> None:
    """Of a run that has ended: how, and the end of its log; the whole log is text."""
    run = record_run(page.lake, "quiet", AT, "failed", error={"message": "no rights", "hint": "grant them"})
    log = b"".join(b"line %d\n" % n for n in range(20_000))
    page.lake.write(log_key("quiet", run), log)
    html = page.get(f"/pipelines/quiet/runs/{run}")
    assert "no rights" in html
    assert "grant them" in html
    assert "line 19999" in html
    assert "line 1000\n" not in html
    whole = page.client.get(f"/pipelines/quiet/runs/{run}/log")
    assert whole.content == log
    assert whole.headers["content-type"].startswith("text/plain")


def test_a_run_shows_its_own_commits(page: Page) -> None:
    """Those that its record does not name yet, too, and none of another run."""
    runs = [record_run(page.lake, "quiet", AT + timedelta(hours=n), "success", rows=5, commit=n) for n in range(3)]
    for number, run in enumerate(runs, 1):
        html = page.get(f"/pipelines/quiet/runs/{run}")
        assert [n for n in range(1, 4) if f'href="/pipelines/quiet/commits/{n}"' in html] == [number]


@pytest.mark.heavy
def test_columns_of_a_long_history(page: Page) -> None:
    """What changed in the latest commits is shown, by a few reads however long the log is; older changes are named."""
    shop = Shop(page.root)
    shop._head = Log(page.lake, "shop").latest()
    for number in range(430):
        shop.load("long", {"id": INTEGER} if number < 420 else {"id": INTEGER, "late": STRING}, [{"id": number}])
    html = page.get("/pipelines/shop/table?stream=long")
    assert "late string" in html
    assert "tables history" in html


def test_a_run_under_way_is_shown_live(page: Page) -> None:
    """One of this service by its stage and records, before the bucket has any record of it."""
    where = page.submit("/pipelines/shop/run")
    assert "waits for its turn" in page.get(where)
    page.runs.work(4321)
    html = page.get(where)
    assert "4,321" in html
    assert "extracting" in html
    assert "4,321" in page.seen("/")


def test_a_commit_says_what_it_did(page: Page) -> None:
    """Rows of each table, the bookmarks it moved, and whether a rollback can go back to it."""
    html = page.get("/pipelines/shop/commits/2")
    assert ">20<" in html
    assert 'href="/pipelines/shop/rollback?to=2"' in html
    last = page.get("/pipelines/shop/commits/4")
    assert "already those of this commit" in last
    assert "rollback?to" not in last
    assert page.get("/pipelines/shop/commits").count("data") >= 4


def test_bookmarks_and_their_history(page: Page) -> None:
    """The STATE as it is, and each commit that moved it."""
    html = page.get("/pipelines/failing/bookmarks")
    assert "&#34;replication_key_value&#34;: 504" in html
    assert html.count("Commit ") == 3


def test_rejects_with_samples(page: Page) -> None:
    """Counts by reason, and the values that were wrong."""
    html = page.get("/pipelines/shop/rejects")
    assert "1 record<" in html
    assert "not an integer" in html
    assert "&#34;no number&#34;" in html
    assert "No rejects" in page.get("/pipelines/shop/rejects?stream=nothing")


def test_a_table_shows_columns_rows_drift_and_how_to_read_it(page: Page) -> None:
    """All that `tables show`, `head`, `history` and `ddl` say."""
    html = page.get("/pipelines/shop/table?stream=orders")
    assert "discount int64" in html, "what a later commit added"
    assert "read_parquet" in html
    assert "CREATE EXTERNAL TABLE" in html
    assert html.index(">99<") < html.index(">29<"), "newest rows first"
    assert "there is no such table" in page.get("/pipelines/shop/table?stream=../../etc/passwd", 404)


def test_settings_are_shown_without_secrets(page: Page) -> None:
    """As `config show` prints them."""
    text = (
        'pipelines:\n  shop: {source: {tap: tap-x, config: {password: hunter22, url: "pg://u:hunter33@h/d"}}, '
        "destination: {bucket: lake}}\n"
    )
    (page.root / "bridge.yaml").write_text(text)
    for path in ("/pipelines/shop/settings", "/pipelines/shop/settings?all=1", "/pipelines/shop/run"):
        html = page.get(path)
        assert "hunter" not in html
    assert "***" in page.get("/pipelines/shop/settings")


def test_a_wrong_file_keeps_the_old_pipelines_and_says_so(page: Page) -> None:
    """The page does not go away with a typing error."""
    page.seen("/")
    path = page.root / "bridge.yaml"
    right = path.read_text()
    path.write_text(right + "\nnonsense: {}\n")
    html = page.seen("/")
    assert "bridge.yaml is wrong" in html
    assert 'href="/pipelines/shop"' in html
    path.write_text(right)
    assert "bridge.yaml is wrong" not in page.seen("/")


def test_an_included_file_is_repaired(page: Page) -> None:
    """A new one that is wrong, and then right, while bridge.yaml stays as it is."""
    path, included = page.root / "bridge.yaml", page.root / "more.yaml"
    included.write_text("pipelines: [")
    path.write_text(path.read_text() + "\ninclude: [more.yaml]\n")
    assert "bridge.yaml is wrong" in page.seen("/")
    included.write_text('pipelines: {more: {source: {tap: "true"}, destination: {bucket: lake}}}\n')
    html = page.seen("/")
    assert "bridge.yaml is wrong" not in html
    assert 'href="/pipelines/more"' in html


def test_a_pipeline_whose_settings_are_wrong_is_shown_as_such(page: Page) -> None:
    """The others are shown all the same."""
    with (page.root / "bridge.yaml").open("a") as file:
        file.write("  odd: {source: {tap: x}, destination: {bucket: 7}}\n")
    assert "unreadable" in page.seen("/")
    assert "odd.destination.bucket" in page.get("/pipelines/odd")
    assert 'class="status success"' in page.seen("/?q=shop") or "orders" in page.get("/pipelines/shop")


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines/no",
        "/pipelines/shop/runs/20260101T000000Z-aaaa",
        "/pipelines/shop/runs/..%2f..%2fbridge.yaml",
        "/pipelines/..%2f..%2fetc",
        "/pipelines/shop/commits/99",
        "/pipelines/shop/table",
        "/static/..%2fapp.py",
        "/nothing",
    ],
)
def test_what_is_not_there(page: Page, path: str) -> None:
    """A name that is none of ours is 404; it never becomes a path of a file."""
    assert page.client.get(path).status_code == 404
