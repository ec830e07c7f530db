"""Compares the tables of a pipeline with its source, and keeps what it finds in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import structs

from bridge.errors import SettingsError
from bridge.lake.log import Log
from bridge.lake.reconciled import Proof, keep
from bridge.lake.storage import lake_of
from bridge.load.run.result import Counts
from bridge.load.run.stop import Stop
from bridge.load.run.streams import Streams
from bridge.operate.reconcile.compare import Question, Side, compare
from bridge.operate.reconcile.sweep import Shown, Swept, swept
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.state import bookmark
from bridge.read.query.snapshot import TablesAt
from bridge.settings.destination import APPEND_ONLY
from bridge.settings.options import Pipeline

_VALUE = "replication_key_value"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The proofs by stream; and why a table was not compared."""

    commit: int
    proofs: dict[str, Proof]
    not_compared: dict[str, str]
    former: dict[str, Proof]
    """By stream, what the comparison before this one source."""

    @property
    def differs(self) -> bool:
        """Whether a table is not as its source, or nobody can tell."""
        return bool(self.not_compared) or any(proof.differs for proof in self.proofs.values())


def reconcile(
    pipeline: Pipeline,
    home: Path,
    stop: Stop,
    *,
    streams: Sequence[str] = (),
    keys_only: bool = False,
    samples: int = 3,
    shown: Shown = nullcontext,
    working: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Comparison:
    """Extract the source once more, and compare it with the lake as it was before.

    `streams`: empty for all that are selected. `shown` shows the extraction to people, `working` what follows.

    Raises `SettingsError` for a lake without tables, `BridgeError` if the extraction fails.
    """
    before, started = TablesAt.of(Log(lake_of(pipeline.destination), pipeline.name), None), _now()
    tables = before.snapshot.stream_tables
    if not tables:
        hint = f"run the pipeline first: singer-bridge run {pipeline.name}"
        raise SettingsError("there is nothing to compare: the lake has no table", hint=hint, pipeline=pipeline.name)
    with swept(pipeline, home, streams, stop, shown, keys_only=keys_only) as source:
        after = TablesAt.of(before.log, None)
        facts = {"run_id": source.run_id, "commit": before.snapshot.n, "started": started, "ended": _now()}
        proofs, reasons = dict[str, Proof](), dict[str, str]()
        for stream in sorted(tables if source.streams is None else source.streams & tables.keys()):
            stop.tick()
            if stream not in source.counts:
                reasons[stream] = "the tap sent nothing of it, not even its SCHEMA"
                continue
            question = _question(pipeline, before, after, source, stream, keys_only=keys_only)
            with working(f"comparing {stream}"), _reading(before, after, source.tables):
                proof = compare(question, source.spill, samples)
            rejected = source.counts[stream].rejected
            proofs[stream] = structs.replace(proof, pipeline=pipeline.name, rejected=rejected, **facts)
    former = keep(before.log.storage, pipeline.name, proofs) if proofs else {}
    return Comparison(before.snapshot.n, proofs, reasons, former)


@contextmanager
def _reading(*lakes: TablesAt) -> Iterator[None]:
    """Raise what kept a file from being opened: DuckDB keeps only the text of an error."""
    try:
        yield
    finally:
        for lake in lakes:
            lake.raise_failed()


def _question(
    pipeline: Pipeline, before: TablesAt, after: TablesAt, source: Swept, stream: str, *, keys_only: bool
) -> Question:
    """`before`: the lake before the source was asked; `after`: after it had told all."""
    counts, mark = source.counts[stream], source.replication_key(stream)
    properties = {"properties": dict.fromkeys(counts.keys)}
    plan = Streams(pipeline, source.catalog, before.snapshot).with_schema(
        Schema(stream, properties, list(counts.keys), [mark] if mark else None)
    )
    later = after.snapshot.tables.get(stream)
    changed = later is not None and later != before.snapshot.tables[stream]
    return Question(
        stream,
        lake=Side(before.dataset(stream)),
        source=Side(source.tables.dataset(stream)),
        key=counts.keys,
        replication_key=mark,
        bookmark=_bookmark(before.snapshot.state, counts, mark),
        values=not keys_only,
        later=Side(after.dataset(stream)) if changed else None,
        later_bookmark=_bookmark(after.snapshot.state, counts, mark),
        keeps_former=plan.usual == APPEND_ONLY,
    )


def _bookmark(state: Any, counts: Counts, mark: str) -> Any:
    """The value of a stream's bookmark by this replication key; of one in partitions the least. None: not known."""
    value = bookmark(state, counts.names)
    if not isinstance(value, dict) or not mark:
        return None
    parts = value.get("partitions")
    each = [value, *(part for part in parts if isinstance(part, dict))] if isinstance(parts, list) else [value]
    values = [part[name] for part in each for name in (_VALUE, mark) if part.get(name) is not None]
    return min(values, default=None) if len({type(one) for one in values}) == 1 else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
