"""The last comparison of each table with its source, in the bucket: `.bridge/<pipeline>/reconciled.json`.

One file for all streams: whoever shows how a pipeline stands reads it each time.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, ValidationError, convert, structs, to_builtins

from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.file_records import Count
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage

_SAMPLES, _COLUMNS = 10, 5
"""Keys and columns that a sentence names."""


class Proof(Struct, frozen=True, kw_only=True):
    """How a table and its source compared. With a key the counts are of keys, without one of rows."""

    KINDS: ClassVar[dict[str, str]] = {
        "missing": "not in the lake",
        "extra": "not at the source",
        "stale": "with other values in the lake",
    }
    """The kinds of rows that differ, in a few words."""

    pipeline: str = ""
    run_id: str = ""
    """The comparison's id; the streams of one have the same."""
    commit: Count = 0
    """The last commit that was compared."""
    started: str = ""
    """When the source was first asked, in ISO 8601; `ended`: when it had told all."""
    ended: str = ""
    compared: str
    """`rows`: all columns that both have. `keys`: only keys and replication keys."""
    key: tuple[str, ...]
    """Empty: rows are told apart by all of their values."""
    lake_rows: Count
    """Without those that are marked as deleted."""
    source_rows: Count
    missing: Count
    """At the source and not in the lake."""
    extra: Count
    """In the lake and not at the source."""
    stale: Count
    """In the lake with other values."""
    in_flight: Count
    """At the source at or beyond the bookmark, so the next run brings them; or brought while they were compared."""
    null_keys: Count
    """How many of the missing ones have no replication key: no incremental run extracts them."""
    applied: Count | None = None
    """The commit that made the table as its source, after which it was compared. None: nothing was applied."""
    refused: str = ""
    """Why nothing was applied, where it was asked for."""
    corrected: dict[str, Count] = {}
    """How many were `missing`, `extra` and `stale` before that commit."""
    rejected: Count = 0
    """Records of the source that do not fit their SCHEMA, and so were not compared."""
    former: bool = False
    """Rows are only added, and nothing tells which are of one: extra rows are former ones, or were deleted."""
    columns: dict[str, Count] = {}
    """In how many stale rows, of the first thousand, each column differs; the column that differs most first."""
    other_types: tuple[str, ...] = ()
    """Columns that the source has with another type."""
    only_in_source: tuple[str, ...] = ()
    """Columns that the lake does not have."""
    only_in_lake: tuple[str, ...] = ()
    """Columns that the source does not have."""
    ranges: dict[str, dict[str, tuple[Any, ...]]] = {}
    """By `missing`, `extra` and `stale`, the least and the greatest `key` (its first column) and `replication_key`."""
    samples: dict[str, list[dict[str, Any]]] = {}
    """By kind, some keys; without a key some rows."""

    @staticmethod
    def keep(storage: Storage, pipeline: str, proofs: dict[str, Proof]) -> dict[str, Proof]:
        """Keep comparisons in the bucket, each in the place of the one before it, and return those that there were.

        Another comparison may end at the same moment: both are kept.
        """
        while True:
            before = storage.read_versioned(_key(pipeline))
            former = _read(before.data if before else None)
            data = dumps(to_builtins(_Proofs(streams=former | {name: _short(proof) for name, proof in proofs.items()})))
            if storage.compare_and_swap(_key(pipeline), data, before.etag if before else None) is not None:
                return {stream: former[stream] for stream in proofs if stream in former}

    @staticmethod
    def last(storage: Storage, pipeline: str) -> dict[str, Proof]:
        """The last comparison of each table that was compared, by stream; none if the file cannot be read."""
        return _read(storage.read(_key(pipeline)))

    @property
    def differs(self) -> bool:
        """Whether the lake is not as its source, as far as it was compared."""
        return bool(self.missing or self.stale or self.rejected or (self.extra and not self.former))

    @property
    def wrong(self) -> dict[str, int]:
        """How many are `missing`, `extra` and `stale`, of those that there are."""
        return {kind: rows for kind in self.KINDS if (rows := getattr(self, kind))}

    def sentences(self) -> list[str]:
        """Say for people what differs, a sentence each; the stream is named before it."""
        lines = [self._sentence(kind) for kind in self.wrong]
        if self.null_keys:
            text = "without a replication key: no incremental run extracts"
            lines.append(f"{_count_of(self.null_keys, 'missing row')} {text} {'it' if self.null_keys == 1 else 'them'}")
        if self.rejected:
            text = "not compared, as the SCHEMA does not fit"
            lines.append(f"{_count_of(self.rejected, 'record')} of the source {text}")
        if self.refused:
            lines.append(f"it stays as it is: {self.refused}")
        if self.applied:
            counts = ", ".join(f"{rows:,} {kind}" for kind, rows in self.corrected.items())
            outcome = "corrected it, and it still differs" if self.differs else "made it as its source"
            lines.append(f"commit {self.applied} {outcome}: {counts}")
        if self.only_in_source:
            lines.append(f"columns that the lake does not have: {', '.join(self.only_in_source)}")
        return lines

    def _sentence(self, kind: str) -> str:
        parts = [f"{_count_of(getattr(self, kind), 'key' if self.key else 'row')} {self.KINDS[kind]}"]
        if kind == "extra" and self.former:
            parts.append("former ones, as rows are only added, or deleted")
        if marks := self.ranges.get(kind, {}).get("replication_key"):
            parts.append(f"replication key {' to '.join(dict.fromkeys(map(str, marks)))}")
        if sample := self.samples.get(kind):
            rows = (" ".join(f"{name}={value}" for name, value in row.items()) for row in sample[:_SAMPLES])
            parts.append("such as " + "; ".join(rows))
        if kind == "stale" and self.columns:
            columns = [f"{name} ({rows:,})" for name, rows in list(self.columns.items())[:_COLUMNS]]
            parts.append(f"columns {', '.join(columns)}")
        return ", ".join(parts)


def _count_of(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


class _Proofs(Struct, frozen=True, kw_only=True):
    format: int = 1
    streams: dict[str, Proof] = {}


def _short(proof: Proof) -> Proof:
    """The comparison with few samples: whoever looks at a pipeline reads all of it."""
    return structs.replace(proof, samples={kind: rows[:_SAMPLES] for kind, rows in proof.samples.items()})


def _read(data: bytes | None) -> dict[str, Proof]:
    try:
        return convert(loads(data), _Proofs).streams if data else {}
    except (NotJson, ValidationError):
        return {}


def _key(pipeline: str) -> str:
    return pipeline_key(pipeline, "reconciled.json")
