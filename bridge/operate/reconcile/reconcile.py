"""Compares the tables of a pipeline with its source, and keeps what it finds in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import structs

from bridge.errors import DataError, SettingsError
from bridge.lake.log import Log
from bridge.lake.reconciled import Proof
from bridge.lake.storage import lake_of
from bridge.load.maintain.corrections import Corrector
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.result import Counts
from bridge.load.run.stop import Stop
from bridge.load.run.streams import Streams
from bridge.operate.reconcile.compare import compare
from bridge.operate.reconcile.sides import Question, Side
from bridge.operate.reconcile.sweep import Shown, Swept, swept
from bridge.protocol.schema.json_schema import EXTRA, children
from bridge.protocol.schema.json_schema import source as source_name
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.state import reached_values
from bridge.read.query.changes.messages import Messages
from bridge.read.query.snapshot import TablesAt
from bridge.settings.destination import APPEND_ONLY, UPSERT, LoadMethod
from bridge.settings.options import Pipeline

_MOST = 0.5
"""A larger share of a table's rows is not removed without `--no-guard`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The proofs by stream; and why a table was not compared."""

    pipeline: str
    commit: int
    ended: str
    proofs: dict[str, Proof]
    not_compared: dict[str, str]
    former: dict[str, Proof]
    """By stream, the last comparison before this one."""
    warnings: Sequence[str] = ()

    @property
    def differs(self) -> bool:
        """Whether a table is not as its source, or nobody can tell."""
        return bool(self._wrong or self.not_compared)

    @property
    def _wrong(self) -> int:
        return sum(proof.differs for proof in self.proofs.values())

    @property
    def sentence(self) -> str:
        """Say for people what came out."""
        through, parts = f"through commit {self.commit} at {self.ended}", list[str]()
        if self._wrong:
            parts.append(f"{_tables(self._wrong)} not as {'its' if self._wrong == 1 else 'their'} source")
        if self.not_compared:
            parts.append(f"{_tables(len(self.not_compared))} not compared")
        return ", ".join([*(parts or ["the lake is as its source"]), through])

    def sentences(self) -> list[str]:
        """Say it of each table of which there is more to say."""
        lines = {name: proof.sentences() for name, proof in self.proofs.items()}
        left = [f"{name} was not compared: {why}" for name, why in self.not_compared.items()]
        return [f"{name}: {', '.join(texts)}" for name, texts in lines.items() if texts] + left

    def to_json(self) -> dict[str, Any]:
        """The comparison, as `--json` prints it."""
        streams = {name: structs.asdict(proof) | {"differs": proof.differs} for name, proof in self.proofs.items()}
        facts = {"format": 1, "pipeline": self.pipeline, "commit": self.commit, "differs": self.differs}
        return facts | {"streams": streams, "not_compared": self.not_compared}


@dataclass(frozen=True, slots=True)
class Comparing:
    """One comparison of a pipeline with its source.

    `streams`: empty for all that are selected. `guard`: `apply` leaves tables as they are that would lose most rows.
    `wait` is how long it may wait for a run. `shown` shows the extraction to people, `working` what follows.
    """

    pipeline: Pipeline
    home: Path
    stop: Stop
    streams: Sequence[str] = ()
    keys_only: bool = False
    samples: int = 3
    guard: bool = True
    wait: timedelta | None = None
    shown: Shown = nullcontext
    working: Callable[[str], AbstractContextManager[object]] = nullcontext

    def _lake(self) -> TablesAt:
        """The lake. Raises `LakeError` for one that is empty and was not, `SettingsError` for one without tables.

        Before anything is written: what looks empty may be the folder below a mount.
        """
        storage, pipeline = lake_of(self.pipeline.destination), self.pipeline
        LastCommits(self.home, pipeline).check(storage, full=False)
        lake = TablesAt.of(Log(storage, pipeline.name), None)
        if not lake.snapshot.stream_tables:
            hint = f"run the pipeline first: singer-bridge run {pipeline.name}"
            raise SettingsError("there is nothing to compare: the lake has no table", hint=hint, pipeline=pipeline.name)
        return lake

    def look(self) -> Comparison:
        """Extract the source once more, and compare it with the lake as it was before. Tables and STATE stay.

        Raises `SettingsError` for a lake without tables, `BridgeError` if the extraction fails.
        """
        return self._compare(self._lake(), None)

    def apply(self) -> Comparison:
        """Make the tables as the source is, by one commit, and compare them again. No run may go on meanwhile.

        With `keys_only` the rows are extracted only if keys differ. Raises `PipelineHeld` while a run is alive.
        """
        if self.keys_only:
            keys = self.look()
            if not keys.differs:
                return keys
            # The look has kept its own findings: what alerts know is what was found before it.
            return replace(replace(self, keys_only=False).apply(), former=keys.former)
        self._lake()
        with Corrector.of(self.pipeline, self.home, self.stop, self.wait or timedelta()) as corrector:
            before = TablesAt(corrector.committer.log, corrector.committer.snapshot)
            return self._compare(before, corrector)

    def _compare(self, before: TablesAt, corrector: Corrector | None) -> Comparison:
        pipeline, tables, started = self.pipeline, before.snapshot.stream_tables, _now()
        merged = {stream for stream, table in tables.items() if table.upserts}
        how: dict[str, Any] = {"keys_only": self.keys_only, "merged": merged}
        with swept(pipeline, self.home, self.streams, self.stop, self.shown, **how) as source:
            after = before if corrector else TablesAt.of(before.log, None)
            facts = {"run_id": source.run_id, "commit": before.snapshot.n, "started": started, "ended": _now()}
            proofs, messages, left = dict[str, Proof](), dict[str, Messages](), dict[str, str]()
            for stream in sorted(tables if source.streams is None else source.streams & tables.keys()):
                if stream not in source.counts:
                    left[stream] = "the tap sent nothing of it, not even its SCHEMA"
                    continue
                if tables[stream].schema is None:
                    left[stream] = "a rollback took the table back: run the pipeline first"
                    continue
                if tables[stream].masks != source.tables.snapshot.tables[stream].masks:
                    left[stream] = "its values are masked in another way than now: set mask and mask_key back"
                    continue
                wrong = self._messages(before, source, stream) if corrector else None
                try:
                    proof = self._proof(before, after, source, stream, wrong)
                except DataError as error:
                    left[stream] = f"{error.message}; {error.hint}"
                    continue
                proofs[stream] = structs.replace(proof, **facts)
                if wrong and proof.differs:
                    messages[stream] = wrong
            warnings = self._correct(corrector, before, source, proofs, messages) if corrector and messages else ()
            former = Proof.keep(before.log.storage, pipeline.name, proofs) if proofs else {}
        last = max([before.snapshot.n, *(one.commit for one in proofs.values())])
        ended = datetime.fromisoformat(str(facts["ended"]))
        return Comparison(pipeline.name, last, f"{ended:%Y-%m-%d %H:%M:%S}Z", proofs, left, former, warnings)

    def _messages(self, before: TablesAt, source: Swept, stream: str) -> Messages:
        path = source.spill.with_name(f"{len(stream)}-{abs(hash(stream))}.jsonl")
        columns = before.columns(before.snapshot.tables[stream])
        return Messages(path, stream, source.counts[stream].keys, columns)

    def _proof(
        self, before: TablesAt, after: TablesAt, source: Swept, stream: str, wrong: Messages | None = None
    ) -> Proof:
        self.stop.tick()
        question = _question(self.pipeline, before, after, source, stream, keys_only=self.keys_only)
        with self.working(f"comparing {stream}"), _reading(before, after, source.tables):
            proof = compare(question, source.spill, self.samples, wrong)
        rejected = source.counts[stream].rejected
        return structs.replace(proof, pipeline=self.pipeline.name, rejected=rejected)

    def _correct(
        self,
        corrector: Corrector,
        before: TablesAt,
        source: Swept,
        proofs: dict[str, Proof],
        messages: dict[str, Messages],
    ) -> Sequence[str]:
        """Make the tables as the source is, as far as they can be, and put their new proofs in the place of the old.

        Returns warnings.
        """
        keys, reasons = dict[str, tuple[str, ...]](), list[str]()
        for stream, wrong in messages.items():
            proof = proofs[stream]
            if why := self._obstacle(before, source, stream, proof, wrong):
                proofs[stream] = structs.replace(proof, refused=why)
                continue
            keys[stream] = proof.key
            counts = ", ".join(f"{rows:,} {kind}" for kind, rows in proof.wrong.items())
            reasons.append(f"{stream} {counts}")
        if not keys:
            return ()
        chunks = chain.from_iterable(messages[stream].read() for stream in keys)
        reason = f"reconciled with the source: {'; '.join(reasons)}"
        with self.working("applying"):
            warnings = corrector.correct(keys, chunks, reason)
        now = TablesAt(before.log, corrector.committer.snapshot)
        for stream in keys:
            old, new = proofs[stream], self._proof(now, now, source, stream)
            facts = {"commit": now.snapshot.n, "applied": now.snapshot.n, "corrected": old.wrong}
            proofs[stream] = structs.replace(new, run_id=old.run_id, started=old.started, ended=old.ended, **facts)
        return warnings

    def _obstacle(self, before: TablesAt, source: Swept, stream: str, proof: Proof, wrong: Messages) -> str:
        """Why a table that differs is left as it is; empty if it can be made as its source."""
        table, usual = before.snapshot.tables[stream], _usual(self.pipeline, before, source, stream)
        fields = before.columns(table)
        if not (proof.key and table.upserts and usual == UPSERT):
            return "its rows are not merged by a key: only `run --full` replaces them"
        if stream in before.snapshot.staged:
            return "it is half loaded: run the pipeline first"
        if proof.rejected:
            return "records of the source do not fit their SCHEMA: without them rows look deleted"
        if proof.other_types:
            return f"columns have another type at the source: {', '.join(proof.other_types)}; run the pipeline first"
        if any(source_name(one) != one.name for field in fields for one in children(field.type)):
            return "a column has fields with other names than the tap's: only `run --full` replaces them"
        if EXTRA in fields.names:
            return f"it keeps fields outside its SCHEMA in {EXTRA}: only `run --full` replaces them"
        if wrong.lost:
            return f"NaN or infinity, in {', '.join(wrong.lost)}: only `run --full` replaces them"
        if wrong.is_empty:
            return "rows whose key has a NULL are left as they are"
        if self.guard and proof.extra > _MOST * proof.lake_rows:
            return f"{proof.extra:,} of {proof.lake_rows:,} rows would go: --no-guard, if they are gone at the source"
        return ""


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
        keeps_former=_usual(pipeline, before, source, stream) == APPEND_ONLY,
    )


def _usual(pipeline: Pipeline, before: TablesAt, source: Swept, stream: str) -> LoadMethod:
    """How a run loads the stream."""
    keys, mark = list(source.counts[stream].keys), source.replication_key(stream)
    schema = Schema(stream, {"properties": dict.fromkeys(keys)}, keys, [mark] if mark else None)
    return Streams(pipeline, source.catalog, before.snapshot).with_schema(schema).usual


def _bookmark(state: Any, counts: Counts, mark: str) -> Any:
    """The value of a stream's bookmark by this replication key; of one in partitions the least. None: not known."""
    values = reached_values(state, counts.names, mark) if mark else []
    kinds = {type(one) for one in values}
    return min(values) if len(kinds) == 1 and kinds <= {str, int} else None


def _tables(count: int) -> str:
    return "1 table is" if count == 1 else f"{count:,} tables are"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
