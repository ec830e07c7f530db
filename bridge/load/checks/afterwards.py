"""What is left to say after a load that ended well."""

from __future__ import annotations

from bridge.lake.log import Snapshot
from bridge.load.checks.marks import LoadedRun
from bridge.load.checks.not_extracted import not_extracted
from bridge.load.checks.repeats import Seen
from bridge.load.plan import LoadPlan
from bridge.load.result import Result
from bridge.load.tap_reader import TapReader
from bridge.singer.catalog import Catalog
from bridge.tap.source import silent


def look_back(
    plan: LoadPlan,
    reader: TapReader,
    result: Result,
    catalog: Catalog | None,
    declared: Catalog | None,
    before: Snapshot,
    *,
    is_narrowed: bool,
) -> None:
    """Add to the result: rows that come again, marks, that no stream came, that the tap was stopped before its end.

    `declared` is what a tap without a catalog said of its streams; `is_narrowed`: not all were to be extracted.
    """
    pipeline, after, is_piped = plan.pipeline, plan.committer.view, plan.context.piped is not None
    for difference in not_extracted(catalog, result.streams.keys() - before.tables.keys()):
        result.differ(difference)
    if not plan.full:
        seen = Seen(pipeline, plan.tables.methods, before, after, piped=is_piped)
        result.warnings += seen.warnings(result.streams, plan.committer.storage)
        loaded = LoadedRun(
            pipeline=pipeline,
            catalog=catalog,
            methods=plan.tables.methods,
            before=before,
            after=after,
            counts=result.streams,
            deselected=plan.deselected,
            without_state=reader.without_state,
            is_narrowed=is_narrowed or reader.is_partial,
        )
        judgement = loaded.judge(plan.committer.storage)
        result.marks |= judgement.marks
        result.warnings += judgement.warnings
    if not (catalog or result.streams or after.tables or is_piped):
        result.warnings.append(silent(pipeline.name, declared))
    if reader.is_partial:
        read = sum(counts.committed for counts in result.streams.values())
        result.warnings.append(f"stopped after {read:,} records, as --max-records says: run again for the rest")
