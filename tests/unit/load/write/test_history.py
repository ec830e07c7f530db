"""The versions of a table are those that a plain reading of docs/history.md gives, whatever comes in whatever order."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bridge.load.write.merge.plan
import bridge.load.write.spill
from bridge.lake.records import TableState
from bridge.load.write.merge.match import MergeSpec, VersionSweep
from bridge.load.write.merge.plan import Merged
from bridge.load.write.merge.versioning import Versioning
from bridge.load.write.partition import Partition
from bridge.load.write.report import SpillFile
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP, VersionColumn
from bridge.protocol.schema.table_schema import TableSchema
from tests.unit.load.write.test_merge import Table

Row = dict[str, Any]
NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Kept(Table):
    """A table of versions; `now` is the time of its next commit."""

    now = NOON

    def __init__(self, root: Path, schema: pa.Schema, keys: Sequence[str], history: Versioning, **target: Any) -> None:
        super().__init__(root, schema, keys, history=history, **target)
        self.history = history

    def merge(
        self, came: list[SpillFile], *, sweep: VersionSweep | None = None, schema: pa.Schema | None = None
    ) -> Merged:
        self.schema = schema or self.schema
        columns = TableSchema(self.history.columns(self.schema)).to_json()
        state = TableState("shop/t", None, self.files)
        with mock.patch("time.time_ns", lambda: round(self.now.timestamp() * 1e9)):
            merged = self.merger.merge(MergeSpec("t", columns, 1, False, sweep), state, came)
        self.publish(merged)
        return merged

    def load(self, *rows: Row, sweep: VersionSweep | None = None, version: int | None = None) -> dict[str, int]:
        """Load rows in one commit; return its counts, as far as they are not 0."""
        self.now += timedelta(days=1)
        merged = self.merge([self.spill(rows, [version] * len(rows))] if rows else [], sweep=sweep)
        return {name: count for name, count in (merged.counts | {"swept": merged.swept}).items() if count}

    def versions(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the columns and start, end and whether it is current, by key and start."""
        rows = [
            tuple(row[name] for name in (*names, VersionColumn.START, VersionColumn.END, VersionColumn.CURRENT))
            for row in self.rows()
        ]
        return sorted(rows, key=lambda row: tuple((one is not None, one) for one in (*row[: len(names)], row[-3])))


KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int64(), [None, 1, 2, 3, 4, 5]),
    "float": (pa.float64(), [None, float("nan"), -0.0, 0.0, 1.5, 2.5]),
    "decimal": (pa.decimal128(10, 2), [None, Decimal("1.10"), Decimal("2.20"), Decimal("3.30")]),
    "text": (pa.string(), [None, "", "a", "b", "c"]),
    "time": (TIMESTAMP, [None, *(NOON + timedelta(hours=hours) for hours in (-30, -20, 1, 30, 40, 60, 300))]),
    "date": (pa.date32(), [None, *(date(2025, 1, day) for day in (1, 2, 3, 4, 30))]),
}


@dataclass
class Version:
    start: Any
    values: Row
    end: Any = None
    is_ended: bool = False


def later(one: Any, other: Any) -> Any:
    return max((one, other), key=lambda value: (value is not None, value))


def before(one: Any, other: Any) -> bool:
    return (one is not None, one) < (other is not None, other) if None in (one, other) else bool(one < other)


@dataclass
class Model:
    """The versions of one key, by the words of the document, one message after the other."""

    tracked: Sequence[str]
    by_sequence: bool
    all: list[Version] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    """Of deletions that no row has taken back."""
    deleted: set[Any] = field(default_factory=set)
    """Times of deletions that came."""

    def begin(self) -> None:
        """Tell rows that were the same version apart again, as far as the table knows them: the first and the last."""
        self.ends = [one.end for one in self.all if one.is_ended]
        self.deleted = set(self.ends)
        result: list[Version] = []
        for one, after in zip_longest(self.all, self.all[1:]):
            end, has_end = (one.end, True) if one.is_ended else (after and after.start, after is not None)
            result.append(one)
            own = self.sequence(one)
            if before(one.start, own) and (not has_end or before(own, end) or (one.is_ended and own == end)):
                result.append(Version(self.sequence(one), one.values))
        self.all = result

    def sequence(self, one: Version) -> Any:
        at = one.values["at"] if self.by_sequence else one.start
        return None if at != at else at

    @property
    def latest(self) -> Any:
        return later(self.all[-1].start, self.sequence(self.all[-1])) if self.all else None

    def put(self, start: Any, values: Row) -> None:
        if not self.all or not before(start, self.latest):  # it is the latest row, so it is there (again)
            self.ends = [end for end in self.ends if before(end, start)]
        self.all = [one for one in self.all if one.start != start]
        self.all.append(Version(start, values))
        self.all.sort(key=lambda one: (one.start is not None, one.start))

    def delete(self, at: Any) -> None:
        is_again = at is not None and at in self.deleted
        self.ends.append(at if is_again else later(at, self.latest))
        if at is not None:
            self.deleted.add(at)

    def fold(self) -> None:
        """Leave one of neighbours that are the same version; it has the values of the last one."""
        for one, after in zip_longest(self.all, self.all[1:]):
            ends = [end for end in self.ends if not before(end, one.start) and (not after or before(end, after.start))]
            one.is_ended = bool(ends)
            one.end = min(ends, key=lambda end: (end is not None, end)) if ends else None
        result: list[Version] = []
        for one in self.all:
            same = result and not result[-1].is_ended
            if same and all(result[-1].values[name] == one.values[name] for name in self.tracked):
                result[-1] = Version(result[-1].start, one.values, one.end, one.is_ended)
            else:
                result.append(one)
        self.all = result

    def rows(self) -> list[tuple[Any, ...]]:
        ends = [*(one.start for one in self.all[1:]), *([None] if self.all else [])]
        return [
            (*one.values.values(), one.start, one.end if one.is_ended else end, not one.is_ended and n == len(ends))
            for n, (one, end) in enumerate(zip(self.all, ends, strict=True), 1)
        ]


@st.composite
def stories(draw: st.DrawFn) -> tuple[str, list[list[Row]]]:
    """A kind of sequence, and the rows of some commits; `at` is their sequence, `gone` marks deletions."""
    kind = draw(st.sampled_from([*KINDS, ""]))
    at = st.sampled_from(KINDS[kind][1] if kind else [None])
    values = {"k": st.integers(0, 2), "v": st.sampled_from([None, 1, 2]), "w": st.sampled_from([0, 1])}
    row = st.fixed_dictionaries(values | {"at": at, "gone": st.sampled_from([False, False, False, True])})
    return kind, draw(st.lists(st.lists(row, max_size=8), min_size=1, max_size=5))


@pytest.mark.timeout(1200)  # each story does a few commits, and each of them waits for the disk
@settings(max_examples=40, deadline=None)
@given(story=stories(), seed=st.integers(0, 9), tiny=st.booleans(), track=st.booleans(), parts=st.booleans())
def test_versions_are_as_the_document_says(
    story: tuple[str, list[list[Row]]], seed: int, tiny: bool, track: bool, parts: bool
) -> None:
    """Any sequence, in any order, however rows are split; deletions, equal rows, and partitions by what is current."""
    kind, commits = story
    history = Versioning("t", "at" if kind else None, track=("v",) if track else ())
    type_ = KINDS[kind][0] if kind else pa.int64()
    schema = pa.schema(
        [("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("at", type_), (DELETED_AT, TIMESTAMP)]
    )
    tracked = ["v"] if track else ["v", "w"] if kind else ["v", "w", "at"]
    models: dict[int, Model] = defaultdict(lambda: Model(tracked, by_sequence=bool(kind)))
    sizes = {"_RANGE": 1, "_PIECE": 1} if tiny else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(bridge.load.write.merge.plan, _RANGE=sizes.get("_RANGE", 1 << 27)),
    ):
        by = {"partition_by": (Partition(VersionColumn.CURRENT),)} if parts else {}
        table = Kept(Path(folder), schema, ["k"], history, **by)
        for rows in commits:
            table.now += timedelta(days=1)
            told = table.now - timedelta(hours=1)
            spills = [
                table.spill([{**row, DELETED_AT: told if row["gone"] else None} for row in some])
                for some in ([rows[: seed % 4], rows[seed % 4 :]] if tiny else [rows])
                if some
            ]
            merged = table.merge(spills)
            assert merged.counts["rows"] == len(rows)
            _follow(models, rows, kind, table.now, told)
            expected = [row for _, model in sorted(models.items()) for row in model.rows()]
            assert plain(table.versions("k", "v", "w", "at")) == plain(expected)


def plain(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """The rows so that equal ones look alike: zeros, NaN, and times in whatever class of zone."""
    return sorted(repr([_plain(value) for value in row]) for row in rows)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else 0.0 if value == 0 and type(value) is float else value


def _follow(models: dict[int, Model], rows: Sequence[Row], kind: str, now: datetime, told: datetime) -> None:
    """Have the models read the rows of one commit."""
    base: dict[int, datetime] = {}
    for key in {row["k"] for row in rows}:
        models[key].begin()
    for row in rows:
        model, at = models[row["k"]], row["at"]
        at = None if at != at else at
        if not kind:
            times = [time for one in model.all for time in (one.start, one.end) if time]
            first = max(now, max(times) + timedelta(microseconds=1)) if times else now
            at = base[row["k"]] = base[row["k"]] + timedelta(microseconds=1) if row["k"] in base else first
        if row["gone"]:
            time = {"time": told, "date": told.date()}.get(kind)
            model.delete(later(at, time) if kind else at)
        else:
            model.put(at, {name: row[name] for name in ("k", "v", "w", "at")})
    for key in {row["k"] for row in rows}:
        models[key].fold()
