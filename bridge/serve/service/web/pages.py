"""Pages that are looked at: all pipelines, one pipeline, its runs, commits, bookmarks, rejects and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain, islice, takewhile
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.errors import BridgeError
from bridge.lake.log import Log, Snapshot
from bridge.lake.reconciled import Proof
from bridge.lake.runs import RunRecord, advice, is_run_id
from bridge.lake.state.history import steps
from bridge.lake.state.store import StateStore
from bridge.lake.stream_files import replication_methods
from bridge.load.maintain.rejects.survey import STDOUT, Criteria, RejectGroup, blamed, find, first_files, groups, read
from bridge.protocol.singer.state import bookmark
from bridge.read.query.changes.commit_effects import CommitStep, commit_step, commit_steps
from bridge.read.query.runs import latest_runs
from bridge.read.query.views import list_views
from bridge.serve.service.web.pictures.steps import growth, pictures
from bridge.serve.service.web.pipeline_status import PipelineStatus, RunFacts
from bridge.serve.service.web.pipelines import ListedPipeline
from bridge.serve.service.web.render import page
from bridge.serve.service.web.site import Site, number, site_of
from bridge.settings.commands import reload
from bridge.settings.effective import effective, to_yaml

_FEW, _PAGE = 10, 50
_SAMPLES, SAMPLE_BYTES = 50, 4 << 20
_WALK, _NEAR = 500, 200
"""Commits that one page of bookmarks reads; and how far back a commit's page plans the rollback."""
_FAILING = ("failed", "died", "unreadable")

T = TypeVar("T")


def overview(request: Request) -> Response:
    """All pipelines: `q` is a part of the name, of them or of their tables; `show` a status."""
    site = site_of(request)
    sights = site.watch.all()
    live = {run.pipeline: run for run in site.watch.live()}
    show, words = request.query_params.get("show", ""), request.query_params.get("q", "").strip().casefold()
    kinds = {
        "running": [s for s in sights if s.key in live or s.word == "running"],
        "failing": [s for s in sights if s.word in _FAILING],
        "rejects": [s for s in sights if s.runs and s.runs[0].rejected],
        "unread": [s for s in sights if s.status is None and s.error is None],
    }
    chosen = kinds.get(show, sights)
    rows = [sight for sight in chosen if words in sight.key.casefold()]
    counts = {"all": len(sights)} | {kind: len(members) for kind, members in kinds.items()}
    following = {sight.key: site.runs.next_run(sight.key) for sight in rows if sight.shown.in_file}
    facts: dict[str, Any] = {"rows": rows, "live": live, "counts": counts, "following": following}
    tables = [(sight.key, name, n) for sight in chosen for name, n in sorted(sight.tables.items())]
    facts["tables"] = [table for table in tables if words in table[1].casefold()] if words else []
    return page(request, "overview.html", **facts, show=show, q=request.query_params.get("q", ""), tab="pipelines")


def all_runs(request: Request) -> Response:
    """The latest runs of all pipelines."""
    site = site_of(request)
    lists = [sight.runs for sight in site.watch.all()]
    every = sorted(chain.from_iterable(lists), key=lambda run: run.run_id, reverse=True)
    show = request.query_params.get("show", "")
    shown = [run for run in every if show in ("", run.status)]
    waiting = [run for run in site.watch.live() if run.status == "waiting"]
    return page(request, "all_runs.html", runs=shown[:200], waiting=waiting, show=show, tab="runs")


def pipeline(request: Request) -> Response:
    """A pipeline: how it stands, its streams, views, latest runs and commits."""
    site, shown, sight = _asked(request)
    facts: dict[str, Any] = {"view": None, "streams": [], "views": [], "commits": [], "rejects": 0, "pictures": []}
    if sight.status is not None:
        log = shown.lake
        snapshot = log.snapshot(log.latest())
        facts = {
            "view": snapshot,
            "streams": _streams(shown, log, snapshot, sight),
            "views": list_views(log) if any(table.view for table in snapshot.tables.values()) else [],
            "commits": list(islice(commit_steps(log, snapshot.n), 8)) if snapshot.n else [],
            "rejects": sum(file.lines for file in snapshot.rejects.values()),
            "pictures": pictures(growth(log, snapshot.n)),
        }
    marks = sight.status["marks"] if sight.status else {}
    facts["advice"] = [advice(kind, streams, shown.key) for kind, streams in marks.items()]
    schedule = shown.pipeline.schedule if shown.pipeline else None
    following = site.runs.next_run(shown.key) if shown.in_file else None
    facts |= {"runs": sight.runs[:_FEW], "schedule": schedule, "following": following}
    return page(request, "pipeline.html", **_common(site, shown, sight), **facts)


def _streams(shown: ListedPipeline, log: Log, snapshot: Snapshot, sight: PipelineStatus) -> list[dict[str, Any]]:
    """A row for each stream that has a table or a bookmark."""
    methods, pipeline = replication_methods(log, snapshot), shown.with_names
    marks: dict[str, Any] = sight.status["bookmarks"] if sight.status else {}
    names = dict.fromkeys([*sorted(snapshot.stream_tables), *marks])
    aliases = {other for name in snapshot.stream_tables for other in pipeline.names_of(name) if other != name}
    rows = []
    for name in (name for name in names if name not in aliases):
        table = snapshot.stream_tables.get(name)
        mark: dict[str, Any] = next((marks[other] for other in (name, *pipeline.names_of(name)) if other in marks), {})
        rows.append(
            {
                "stream": name,
                "table": table,
                "bytes": sum(file.size for file in table.files.values()) if table else 0,
                "method": methods.get(name),
                "bookmark": bookmark(snapshot.state, (*pipeline.names_of(name), name)),
                "moved": mark.get("moved"),
                "rejects": sum(file.lines for file in snapshot.rejects.values() if file.stream == name),
            }
        )
    return rows


def runs(request: Request) -> Response:
    """All runs of a pipeline, a page at a time; `before` is the run after which the page begins."""
    site, shown, sight = _readable(request)
    before = request.query_params.get("before")
    before = before if before and is_run_id(before) else None
    listed, more = _page(latest_runs(shown.lake, before=before))
    facts = [RunFacts.of(shown.key, record) for record in listed]
    waiting = [run for run in site.watch.live(shown.key) if run.status == "waiting"] if not before else []
    return page(
        request, "runs.html", **_common(site, shown, sight), runs=facts, more=more, before=before, waiting=waiting
    )


def commits(request: Request) -> Response:
    """The commits of a pipeline, newest first; `before` as in `runs`."""
    site, shown, sight = _readable(request)
    log = shown.lake
    before = request.query_params.get("before", "")
    head = log.latest()
    top = head if (end := number(before)) is None else min(head, end - 1)
    listed, more = _page(commit_steps(log, top)) if top > 0 else ([], False)
    return page(
        request, "commits.html", **_common(site, shown, sight), commits=listed, more=more, head=head, before=before
    )


def commit(request: Request) -> Response:
    """One commit: what it did to each table and bookmark, and whether a rollback can go back to it."""
    from bridge.lake.commit.rollback import plan

    site, shown, sight = _readable(request)
    log, n = shown.lake, number(request.path_params["n"])
    head = log.latest()
    step = None if n is None else commit_step(log, head, n)
    if n is None or step is None:
        raise HTTPException(404, "there is no such commit")
    obstacle = None
    try:
        if head - n <= _NEAR:  # a plan reads all commits since; of older ones the page of the rollback makes it
            planned = plan(log, log.snapshot(head), n)
            obstacle = "tables and STATE are already those of this commit" if planned.nothing_to_do else None
    except BridgeError as error:
        obstacle = f"{error.message}. {error.hint}"
    return page(request, "commit.html", **_common(site, shown, sight), step=step, obstacle=obstacle)


def bookmarks(request: Request) -> Response:
    """The bookmarks of a pipeline, and the commits that moved them; `stream`: only of that one.

    At most so many commits are read for one page; `before` is the commit with which the next page goes on.
    """
    site, shown, sight = _readable(request)
    store, stream = StateStore.at(shown.lake.storage, shown.lake.pipeline), request.query_params.get("stream", "")
    seen = store.read()
    before = request.query_params.get("before", "")
    top = seen.version if (end := number(before)) is None else min(seen.version, end - 1)
    until = max(1, top - _WALK + 1)
    every = steps(shown.lake, top, until) if top > 0 else iter(())
    history, more = _page(s for s in every if not stream or any(c.part == stream for c in s.changes))
    older = history[-1].commit if more else until if until > shown.lake.beginning().first else None
    facts: dict[str, Any] = {"seen": seen, "history": history, "stream": stream, "before": before, "older": older}
    return page(request, "bookmarks.html", **_common(site, shown, sight), **facts, top=top)


def source(request: Request) -> Response:
    """The last comparison of each table with its source."""
    site, shown, sight = _readable(request)
    proofs = Proof.last(shown.lake.storage, shown.lake.pipeline)
    wrong = [stream for stream, proof in sorted(proofs.items()) if proof.differs]
    again = reload(shown.pipeline, wrong) if shown.pipeline and wrong else ""
    facts: dict[str, Any] = {"proofs": dict(sorted(proofs.items())), "again": again, "wrong": wrong}
    return page(request, "source.html", **_common(site, shown, sight), **facts)


def rejects(request: Request) -> Response:
    """The rejects of a pipeline by stream, run and reason, with samples; `stream`, `run` and `reason` choose some."""
    site, shown, sight = _readable(request)
    log, asked = shown.lake, criteria(request)
    snapshot = log.snapshot(log.latest())
    files = find(log.storage, log.pipeline, snapshot, asked)
    every = groups(files, asked)
    records = (one for file in first_files(files, SAMPLE_BYTES) for one in read(log.storage, file))
    requested = (one for one in records if asked.says(one["reason"]))
    samples = [record | {"blamed": blamed(record)} for record in islice(requested, _SAMPLES)]
    facts: dict[str, Any] = {
        "groups": every,
        "samples": samples,
        "asked": asdict(asked),
        "by_stream": _by_stream(every),
    }
    return page(request, "rejects.html", **_common(site, shown, sight), **facts, stdout=STDOUT)


def criteria(request: Request) -> Criteria:
    """Which rejects a request asks for."""
    asked = {name: request.query_params.get(name) or None for name in ("stream", "run", "reason")}
    return Criteria(**asked)


def _by_stream(every: Iterable[RejectGroup]) -> Counter[str]:
    counts = Counter[str]()
    for group in every:
        counts[STDOUT if group.stream is None else group.stream] += group.records
    return counts


def settings(request: Request) -> Response:
    """Show the settings in effect, without secrets: as `config show` prints them."""
    site, shown, sight = _asked(request)
    every = bool(request.query_params.get("all"))
    pipeline = shown.whole(site.pipelines.file, site.pipelines.environment)
    data, defaults = effective(pipeline, every=every)
    text = "\n".join(to_yaml(data, defaults))
    return page(request, "settings.html", **_common(site, shown, sight), text=text, every=every)


def _asked(request: Request) -> tuple[Site, ListedPipeline, PipelineStatus]:
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    return site, shown, site.watch.one(shown)


def _readable(request: Request) -> tuple[Site, ListedPipeline, PipelineStatus]:
    """The same, for a page that reads the bucket. Raises `LakeError` if that does not answer."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    return site, shown, site.sight(shown)


def _common(site: Site, shown: ListedPipeline, sight: PipelineStatus) -> dict[str, Any]:
    """The values for the head of each page of a pipeline."""
    return {"shown": shown, "sight": sight, "live": site.watch.live(shown.key), "tab": "pipelines"}


def _page(items: Iterator[T]) -> tuple[list[T], bool]:
    """The first items, and whether there are more."""
    listed = list(islice(items, _PAGE + 1))
    return listed[:_PAGE], len(listed) > _PAGE


def steps_of(record: RunRecord, log: Log) -> list[CommitStep]:
    """The latest commits of a run, newest first; its record may be some of them behind."""
    last = record.commit or 0
    while (following := log.record(last + 1)) and following.run == record.run_id:
        last += 1
    if last < max(1, log.beginning().first):
        return []
    return list(islice(takewhile(lambda step: step.run == record.run_id, commit_steps(log, last)), _PAGE))
