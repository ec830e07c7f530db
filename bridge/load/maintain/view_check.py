"""Is each view what its SELECT gives? Spark computes it anew, and a view that is not can be filled again.

Checking takes no lease and writes nothing. Filling again is one commit, under the lease; the STATE stays.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import DataError, LakeError, SettingsError
from bridge.exact_json import loads
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.lease import lease_of
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import HIDDEN, TableChange, TableState
from bridge.lake.schemas import columns_of
from bridge.lake.storage import Storage
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables, names_of
from bridge.load.spark.at_need import InSpark, spark_at_need
from bridge.load.write.context import WriteContext
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import View, read_view

MOST = 10
"""How many keys that differ are shown."""
_LOOKS = 3
_PAUSE = 0.5
"""Seconds between two looks, in which a commit that is being published is likely to finish."""
_REFILL = "singer-bridge views verify {view} --repair fills it again"
_REASON = "views verify --repair: filled again"


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key, and its rows that only the view has (`stored`), or only its SELECT gives; as a rule none or one each."""

    key: dict[str, Any]
    stored: list[dict[str, Any]]
    selected: list[dict[str, Any]]

    @property
    def visible(self) -> KeyDifference:
        """The rows without hidden columns."""
        stored, selected = (
            [{name: value for name, value in row.items() if not name.startswith(HIDDEN)} for row in rows]
            for rows in (self.stored, self.selected)
        )
        return KeyDifference(self.key, stored, selected)


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A view after a commit. `problem` is empty if it is what its SELECT gives, `fix` what to type if it is not."""

    view: str
    stream: str
    commit: int
    groups: int
    problem: str = ""
    fix: str = ""
    repairable: bool = False
    differing: int = 0
    differences: list[KeyDifference] = field(default_factory=list)
    """The first keys that differ."""


@dataclass(frozen=True, slots=True)
class Refilled:
    """The views after a repair, and the commit that filled some of them; None: there was nothing to fill."""

    commit: int | None
    views: Sequence[CheckedView]
    notes: Sequence[str]
    """The steps that recovery took first, in sentences."""


OpenSpark = Callable[[Pipeline, WriteContext], AbstractContextManager[InSpark]]


def verify_views(
    storage: Storage, pipeline: Pipeline, names: Collection[str], open_spark: OpenSpark = spark_at_need
) -> list[CheckedView]:
    """Compare these views with their SELECTs over the tables at the last commit. Writes nothing, takes no lease.

    While a run holds the pipeline, only problems that every look finds count: its commits move files. Raises
    `LakeError` if the last run died before its commit was visible, and something is wrong.
    """
    log, lasting = Log(storage, pipeline.name), set(names)
    with open_spark(pipeline, WriteContext.of(pipeline, storage.uri, "verify", 0, {})) as spark:
        for left in reversed(range(_LOOKS)):
            (lease, running), head = lease_of(storage, pipeline.name), log.head()
            checked = list(_checked(log, pipeline, log.snapshot(head), names, spark))
            wrong = lasting & {one.view for one in checked if one.problem}
            if wrong and not running and lease.get("closed", 0) != head:
                hint = f"singer-bridge recover {pipeline.name}; then check the views again"
                raise LakeError("the last run died, and its commit may not be visible", hint=hint, commit=head)
            lasting = wrong
            if not lasting or not left or not (running or log.head() != head):
                break
            time.sleep(_PAUSE)
    return [
        one if one.view in lasting else CheckedView(one.view, one.stream, one.commit, one.groups) for one in checked
    ]


def fill_again(
    storage: Storage, pipeline: Pipeline, names: Collection[str], open_spark: OpenSpark = spark_at_need
) -> Refilled:
    """Fill those of these views again that are not what their SELECTs give. Raises `PipelineHeld` beside a run."""
    with open_pipeline(storage, pipeline.name, brief=True) as committer:
        lake = committer.snapshot
        texts = {name: table.view for name, table in lake.tables.items() if table.view}
        as_committed = pipeline.model_copy(update={"views": texts})
        tables = TablePlanner(storage, as_committed, lake, None, full=False, append=False)
        context = WriteContext.of(pipeline, storage.uri, committer.run, committer.generation, tables.layouts)
        with open_spark(pipeline, context) as spark:
            checked = list(_checked(committer.log, pipeline, lake, names, spark))
            wrong = {one.view for one in checked if one.repairable}
            if not wrong:
                return Refilled(None, checked, committer.notes)
            _refill(committer, ViewTables(as_committed, committer, context, tables, spark), wrong)
            checked = list(_checked(committer.log, pipeline, committer.snapshot, names, spark))
            return Refilled(committer.snapshot.n, checked, committer.notes)


def _refill(committer: Committer, views: ViewTables, names: Collection[str]) -> None:
    changes = dict[str, TableChange]()
    for view in views.views:  # those that select from one that is filled, too
        source = views.feeds(view, changes)
        if view.name in names or source:
            changes |= {change.stream: change for change in views.build(view, source, 1, anew=True)}
    state, staged = committer.snapshot.pipeline_state, committer.snapshot.staged
    committer.commit(state, list(changes.values()), staged=staged, reason=_REASON)


def _checked(
    log: Log, pipeline: Pipeline, lake: Snapshot, names: Collection[str], spark: InSpark
) -> Iterator[CheckedView]:
    views = {name: table for name, table in lake.tables.items() if table.view and name in names}
    for name, table in sorted(views.items()):
        view = read_view(name, table.view)
        try:
            facts = _problem(log, lake.table(names_of(pipeline, view)), view, table, spark)
        except (LakeError, DataError, SettingsError) as error:
            facts = {"problem": error.message, "fix": error.hint}
        yield CheckedView(name, view.stream, lake.n, table.rows, **facts)


def _problem(log: Log, stream: TableState | None, view: View, table: TableState, spark: InSpark) -> dict[str, Any]:
    """The problem of a view, as fields of a `CheckedView`."""
    from bridge.load.spark.view_types import analysed
    from bridge.load.spark.views import ViewWork, compare_view
    from bridge.load.write.signed_file import SignedFile

    if stream is None or stream.schema is None:
        fix = "its stream may have another name in the lake: check it with the bridge.yaml that loads it"
        return {"problem": "there is no table of its stream", "fix": fix}
    columns = columns_of(log.storage, log.pipeline, stream)
    typed = spark(lambda session, _context, _shipped: analysed(session, view, columns))
    refill = {"fix": _REFILL.format(view=shlex.quote(view.name)), "repairable": True}
    if TableSchema(typed.schema).hash != table.schema:
        return {"problem": "has other columns than its SELECT gives"} | refill
    rows = [
        SignedFile(f"{stream.folder}/{one}", file.size, file.rows) for one, file in stream.files.items() if file.rows
    ]
    state = [SignedFile(f"{table.folder}/{one}", file.size, None) for one, file in table.files.items()]
    work = ViewWork(typed, columns, rows, state, (), 0, table.watermark)
    try:
        count, first = spark(lambda session, context, shipped: compare_view(session, context, shipped, work, MOST))
    except LakeError as error:
        if not any(file.key in error.message for file in state):
            raise
        return {"problem": error.message} | refill
    if not count:
        return {}
    differences = [
        KeyDifference(loads(one.key), [*map(loads, one.stored)], [*map(loads, one.selected)]) for one in first
    ]
    return {"problem": "is not what its SELECT gives", "differing": count, "differences": differences} | refill
