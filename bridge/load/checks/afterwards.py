"""What is left to say after a load that ended well."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bridge.lake.log import Snapshot
from bridge.lake.runs import Difference
from bridge.load.checks.marks import LoadedRun
from bridge.load.checks.repeats import Seen
from bridge.load.plan import LoadPlan
from bridge.load.result import Result
from bridge.load.tap_reader import TapReader
from bridge.singer.catalog import Catalog, column_facts, record_name
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
    for difference in not_extracted(catalog, result.streams.keys() - before.tables.keys()):
        result.differ(difference)
    pipeline, after, is_piped = plan.pipeline, plan.committer.view, plan.context.piped is not None
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


def not_extracted(catalog: Catalog | None, new: Collection[str]) -> Iterator[Difference]:
    """Columns of types that the tap does not know, of tables that are new: the lake has no value of them."""
    for stream in catalog["streams"] if catalog else ():
        name = record_name(stream)
        if name not in new:
            continue
        facts = column_facts(stream)
        columns = [".".join(path) for path in facts if facts[path].get("inclusion") == "unsupported"]
        if columns:
            text = (
                f"the tap cannot extract {', '.join(columns)}: the lake has no value of them. To load them, make a "
                "view in the database that casts them to text, and select the view"
            )
            yield Difference(name, "unsupported_column", text)
