"""Compares a table with what its source has, by key: one GROUP BY of DuckDB over both, beyond memory on disk.

```
lake   ─ key, replication key, digest of the values ─┐
                                                     ├─ GROUP BY key ─▶ missing, extra, stale, in flight, equal
source ─ key, replication key, digest of the values ─┘
```
Without a key the digest takes its place: rows are compared as a multiset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from bridge.errors import DataError, SettingsError
from bridge.lake.reconciled import Proof
from bridge.operate.reconcile.sides import Question, Side
from bridge.protocol.schema.json_schema import source

_MEMORY = "1GB"
"""How much of it DuckDB takes before it goes on on disk."""
_LOOKED_AT = 1000
"""Stale rows whose columns are compared one by one."""
_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL)\b")
_NESTED = re.compile(r"\[|STRUCT|MAP|UNION")
_ROWS = 65_536
"""How many of them are handed on at once."""


class Wrong(Protocol):
    """Takes the rows that are not as the source has them, some at a time, with properties as names."""

    def remove(self, keys: pa.Table) -> None:
        """Take keys that are to be removed from the lake."""

    def put(self, rows: pa.Table) -> None:
        """Take rows that are to be in the lake, with the columns that both have."""


def compare(question: Question, folder: Path, samples: int, wrong: Wrong | None = None) -> Proof:
    """Compare one table with its source. `folder` is where DuckDB puts what does not fit into memory.

    `wrong` gets the rows that differ; those without a whole key are left out.

    Raises `SettingsError` without DuckDB, `DataError` for values that it cannot compare.
    """
    with _connected(question.stream, folder) as connection:
        connection.register("lake", question.lake.rows)
        connection.register("source", question.source.rows)
        if question.later:
            connection.register("later", question.later.rows)
        asking = _Asking(connection, question, samples)
        proof = asking.proof()
        if wrong and question.key and not proof.other_types:
            asking.tell(wrong)
        return proof


@contextmanager
def _connected(stream: str, folder: Path) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError as error:
        hint = 'install it: pip install "singer-bridge[sql]"'
        raise SettingsError("reconcile needs DuckDB, which is not installed", hint=hint) from error
    config = {"memory_limit": _MEMORY, "temp_directory": str(folder), "preserve_insertion_order": "false"}
    connection = duckdb.connect(":memory:", config=config | {"python_enable_replacements": "false"})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    except (duckdb.Error, pa.ArrowException) as error:
        cause = str(error).splitlines()[0]
        hint = "compare it by --keys; or leave the stream out: -s names others"
        raise DataError(
            "the table cannot be compared with its source", hint=hint, stream=stream, cause=cause
        ) from error
    finally:
        connection.close()


class _Asking:
    """One comparison: `found` has a row for each key, or for each row without one."""

    def __init__(self, connection: Any, question: Question, samples: int) -> None:
        self._connection, self._question, self._samples = connection, question, samples
        self._lake_types = self._types("lake", question.lake)
        self._source_types = self._types("source", question.source)
        self._check_key()
        self._keys = [f"k{number}" for number, _ in enumerate(question.key)] or ["digest"]
        replicated = question.replication_key in self._lake_types and question.replication_key
        self._replication_key = replicated or ""

    def proof(self) -> Proof:
        """Ask all that the proof says."""
        question = self._question
        self._connection.execute(f"CREATE TEMP TABLE found AS {self._groups('lake', question.lake, question.bookmark)}")
        if question.later:
            self._settle(question.later)
        facts = self._one(
            "SELECT sum(lake), sum(source), sum(missing), sum(extra), sum(stale), sum(in_flight),"
            " sum(missing) FILTER (WHERE marked AND rk IS NULL) FROM found"
        )
        lake, source, missing, extra, stale, in_flight, null_keys = (int(value or 0) for value in facts)
        return Proof(
            key=tuple(question.key),
            compared="rows" if question.values or not question.key else "keys",
            lake_rows=lake,
            source_rows=source,
            missing=missing,
            extra=extra,
            stale=stale,
            in_flight=in_flight,
            null_keys=null_keys,
            former=bool(question.keeps_former and not question.key),
            columns=self._columns() if stale and question.values and question.key else {},
            other_types=tuple(self.other_types()),
            only_in_source=tuple(
                name for name in question.source.own(question.key) if name not in question.lake.columns
            ),
            only_in_lake=tuple(name for name in question.lake.own(question.key) if name not in question.source.columns),
            ranges={kind: bounds for kind in Proof.KINDS if (bounds := self._range(kind))},
            samples={kind: rows for kind in Proof.KINDS if (rows := self._sample(kind))},
        )

    def tell(self, wrong: Wrong) -> None:
        """Hand on the rows that differ."""
        question, keys = self._question, self._keys
        whole = " AND ".join(f"f.{key} IS NOT NULL" for key in keys)
        named = ", ".join(f"f.{key}" for key in keys)
        for rows in self._batches(f"SELECT {named} FROM found f WHERE extra > 0 AND {whole}", question.key):
            wrong.remove(rows)
        lost = [name for name in question.lake.own(question.key) if name not in question.source.columns]
        columns = [f"s.c{number}" for number, _ in enumerate(question.both)]
        columns += [f"l.c{number}" for number, _ in enumerate(lost)]  # what the source lost keeps its values
        on_source, on_lake = (" AND ".join(f"{side}.{key} = f.{key}" for key in keys) for side in ("s", "l"))
        joined = f"found f JOIN ({self._rows('source', question.source, question.both)}) s ON {on_source}"
        joined += f" LEFT JOIN ({self._rows('lake', question.lake, lost)}) l ON {on_lake}" if lost else ""
        statement = f"SELECT {', '.join(columns)} FROM {joined} WHERE f.missing + f.stale > 0 ORDER BY s.rk"
        for rows in self._batches(statement, [*question.both, *lost]):
            wrong.put(rows)

    def _rows(self, table: str, side: Side, properties: Sequence[str]) -> str:
        """The statement for rows with these columns, as `c0`, `c1` and so on, and with all that is grouped."""
        columns = [f"{side.sql(name)} AS c{number}" for number, name in enumerate(properties)]
        return f"SELECT {', '.join([*columns, self._row(side)])} FROM {table} WHERE {side.live}"

    def _batches(self, sql: str, properties: Sequence[str]) -> Iterator[pa.Table]:
        """The answer in pieces, with these names and the types and kinds that the columns have."""
        sides = self._question.lake, self._question.source
        fields = {source(field): field for side in sides for field in side.rows.schema}
        schema = pa.schema([fields[name].with_name(name) for name in properties])
        for batch in self._connection.sql(sql).to_arrow_reader(_ROWS):
            columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.Table.from_arrays(columns, schema=schema)

    def _types(self, table: str, side: Side) -> dict[str, str]:
        """The types of the columns that both have."""
        both = self._question.both
        values = ", ".join(f"{side.sql(name)} AS c{number}" for number, name in enumerate(both)) or "true AS c0"
        rows = self._all(f"DESCRIBE SELECT {values} FROM {table}")
        return {name: row[1] for name, row in zip(both, rows, strict=False)}

    def _check_key(self) -> None:
        """Raise `DataError` for a key that the sides do not have alike: nothing tells which rows belong together."""
        for name in self._question.key:
            kinds = [types.get(name, "none") for types in (self._lake_types, self._source_types)]
            is_alike = name in self._lake_types and kinds[0] == kinds[1]
            if not is_alike and not all(_NUMBER.match(kind) for kind in kinds):
                hint = "run the pipeline first; or load the table again: --full"
                facts = {"column": name, "lake": kinds[0], "source": kinds[1]}
                raise DataError("the key is another one now", hint=hint, stream=self._question.stream, **facts)

    def other_types(self) -> list[str]:
        """The properties whose columns are not alike."""
        question = self._question
        return [
            name
            for name in question.both
            if (self._lake_types[name], question.lake.is_json(name))
            != (self._source_types[name], question.source.is_json(name))
            or len(question.lake.columns[name]) + len(question.source.columns[name]) > 2
        ]

    def _settle(self, later: Side) -> None:
        """Count as in flight what was right, or has become it, when the source had told all."""
        name = "settled"
        self._connection.execute(
            f"CREATE TEMP TABLE {name} AS {self._groups('later', later, self._question.later_bookmark)}"
        )
        kinds = ", ".join(f"least(found.{kind}, coalesce({name}.{kind}, 0)) AS {kind}" for kind in Proof.KINDS)
        total = " + ".join(f"found.{kind} - least(found.{kind}, coalesce({name}.{kind}, 0))" for kind in Proof.KINDS)
        on = " AND ".join(f"found.{key} IS NOT DISTINCT FROM {name}.{key}" for key in self._keys)
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE found AS SELECT found.* REPLACE ({kinds},"
            f" found.in_flight + {total} AS in_flight) FROM found LEFT JOIN {name} ON {on}"
        )

    def _groups(self, table: str, lake: Side, bookmark: Any) -> str:
        """The statement for `found`: how often a key is on each side, and what that means."""
        question, keys = self._question, ", ".join(self._keys)
        sides = f"SELECT true AS here, {self._row(lake)} FROM {table} WHERE {lake.live} UNION ALL "
        sides += f"SELECT false, {self._row(question.source)} FROM source WHERE {question.source.live}"
        grouped = f"""
            SELECT {keys}, count(*) FILTER (here) AS lake, count(*) FILTER (NOT here) AS source,
              max(rk) FILTER (NOT here) AS rk, max(rk) AS any_rk, {self._same()} AS same
            FROM ({sides}) GROUP BY {keys}"""
        new = "false"
        if self._replication_key and bookmark is not None:
            kind = self._lake_types[self._replication_key]
            new = f"coalesce(rk >= TRY_CAST({_literal(bookmark)} AS {kind}), false)"
        counted = f"""
            SELECT *, {new} AS is_new, {bool(self._replication_key)} AS marked,
              {self._kind("missing")} AS absent, {self._kind("extra")} AS extra, {self._kind("stale")} AS older
            FROM ({grouped})"""
        return f"""
            SELECT * EXCLUDE (is_new, absent, older, same), CASE WHEN is_new THEN 0 ELSE absent END AS missing,
              CASE WHEN is_new THEN 0 ELSE older END AS stale,
              CASE WHEN is_new THEN absent + older ELSE 0 END AS in_flight
            FROM ({counted})"""

    def _kind(self, kind: str) -> str:
        """How many rows of this kind a group has: of a key at most one."""
        if not self._question.key:
            sides = {"missing": ("source", "lake"), "extra": ("lake", "source")}
            return f"greatest({' - '.join(sides[kind])}, 0)" if kind in sides else "0"
        conditions = {"missing": "lake = 0", "extra": "source = 0", "stale": "lake > 0 AND source > 0 AND NOT same"}
        return f"CAST({conditions[kind]} AS BIGINT)"

    def _same(self) -> str:
        """The condition that a row of the lake is as one of the source's; of a key there is mostly one of each."""
        if not self._question.key:
            return "true"
        if self._question.keeps_former:
            lists = [f"list(DISTINCT digest) FILTER ({side})" for side in ("here", "NOT here")]
            return f"list_has_any({', '.join(lists)})"
        ends = [f"{end}(digest) FILTER ({side})" for side in ("here", "NOT here") for end in ("min", "max")]
        return " OR ".join(f"{one} = {other}" for one in ends[:2] for other in ends[2:])

    def _row(self, side: Side) -> str:
        """The columns that are grouped: key, replication key, the digest of the values."""
        question = self._question
        keys = [f"{side.sql(name)} AS k{number}" for number, name in enumerate(question.key)]
        mark = side.sql(self._replication_key) if self._replication_key else "NULL::BIGINT"
        names = question.both if question.values or not question.key else [self._replication_key or ""]
        values = [value for name in names if name for value in self._values(side, name)]
        return ", ".join([*keys, f"{mark} AS rk", f"hash({', '.join(values) or 'true'}) AS digest"])

    def _values(self, side: Side, name: str) -> list[str]:
        """A value as it is compared: by the type that the lake has for it, where that loses nothing."""
        value, question = side.sql(name), self._question
        lake_type, source_type = self._lake_types[name], self._source_types[name]
        if question.lake.is_json(name) != question.source.is_json(name) and not side.is_json(name):
            value = f"CAST(to_json({value}) AS VARCHAR)"
        elif lake_type != source_type and side is question.source:
            cast = f"TRY_CAST({value} AS {lake_type})"
            return [*_hashable(cast, lake_type), f"TRY_CAST({cast} AS {source_type}) IS NOT DISTINCT FROM {value}"]
        return [*_hashable(value, lake_type), *(["true"] if lake_type != source_type else [])]

    def _range(self, kind: str) -> dict[str, tuple[Any, ...]]:
        """The least and the greatest key and replication key of a kind."""
        keys = self._keys if self._question.key else []
        kinds = self._kinds()
        ends = [_shown(f"{end}({name})", kinds[name]) for name in [*keys[:1], "any_rk"] for end in ("min", "max")]
        values = [_plain(value) for value in self._one(f"SELECT {', '.join(ends)} FROM found WHERE {kind} > 0")]
        bounds = {"key": values[:2] if keys else [], "replication_key": values[-2:]}
        return {name: tuple(ends) for name, ends in bounds.items() if any(end is not None for end in ends)}

    def _kinds(self) -> dict[str, str]:
        """The types of the columns of `found`."""
        return {row[0]: row[1] for row in self._all("DESCRIBE found")}

    def _sample(self, kind: str) -> list[dict[str, Any]]:
        """Some keys of a kind; without a key some rows."""
        question, keys = self._question, ", ".join(self._keys)
        if not self._samples or not self._one(f"SELECT count(*) FROM found WHERE {kind} > 0")[0]:
            return []
        if question.key:
            kinds = self._kinds()
            shown = ", ".join(_shown(key, kinds[key]) for key in self._keys)
            rows = self._all(f"SELECT {shown} FROM found WHERE {kind} > 0 ORDER BY {keys} LIMIT {self._samples}")
            return [dict(zip(question.key, map(_plain, row), strict=True)) for row in rows]
        table, side = ("lake", question.lake) if kind == "extra" else ("source", question.source)
        types = self._lake_types if kind == "extra" else self._source_types
        columns = ", ".join(_shown(f"c{number}", types[name]) for number, name in enumerate(question.both)) or "true"
        chosen = f"SELECT digest FROM found WHERE {kind} > 0 LIMIT {self._samples}"
        statement = f"SELECT {columns} FROM ({self._rows(table, side, question.both)}) WHERE digest IN ({chosen})"
        rows = self._all(f"{statement} LIMIT {self._samples}")
        return [dict(zip(question.both, map(_plain, row), strict=True)) for row in rows]

    def _columns(self) -> dict[str, int]:
        """In how many stale rows, of the first thousand, each column differs; the column that differs most first."""
        question = self._question
        keys, names = self._keys, [name for name in question.both if name not in question.key]
        self._connection.execute(
            f"CREATE TEMP TABLE chosen AS SELECT {', '.join(keys)} FROM found WHERE stale > 0"
            f" ORDER BY ALL LIMIT {_LOOKED_AT}"
        )
        sides = []
        for table, side in (("lake", question.lake), ("source", question.source)):
            values = [f"hash({', '.join(self._values(side, name))}) AS v{n}" for n, name in enumerate(names)]
            latest = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY rk DESC) = 1"
            rows = f"SELECT {', '.join([self._row(side), *values])} FROM {table} WHERE {side.live}"
            sides.append(f"(SELECT * FROM ({rows}) {latest})")
        on = " AND ".join(
            f"a.{key} IS NOT DISTINCT FROM c.{key} AND b.{key} IS NOT DISTINCT FROM c.{key}" for key in keys
        )
        counts = ", ".join(f"count(*) FILTER (a.v{n} <> b.v{n})" for n, _ in enumerate(names)) or "0"
        differing = self._one(f"SELECT {counts} FROM chosen c, {sides[0]} a, {sides[1]} b WHERE {on}")
        ordered = sorted(zip(names, differing, strict=False), key=lambda one: (-one[1], one[0]))
        return {name: count for name, count in ordered if count}

    def _one(self, sql: str) -> Sequence[Any]:
        (row,) = self._all(sql)
        return tuple(row)

    def _all(self, sql: str) -> Sequence[Any]:
        return list(self._connection.execute(sql).fetchall())


def _hashable(value: str, kind: str) -> list[str]:
    """A value as DuckDB tells it from others: its hash does not see where a list ends, nor which part is null."""
    if not _NESTED.search(kind):
        return [value]
    texts = f"CAST({value} AS VARCHAR)", f"CAST(to_json({value}) AS VARCHAR)"
    return [f"regexp_replace({text}, '-0\\.0([,\\]}} ])', '0.0\\1', 'g')" for text in texts]


def _shown(value: str, kind: str) -> str:
    """A value in a form that JSON has; DuckDB's client would need a library for instants."""
    if kind.startswith("TIMESTAMP"):
        return f"strftime({value}, '%Y-%m-%dT%H:%M:%S.%fZ')"
    return value if kind in ("BOOLEAN", "BIGINT", "INTEGER", "DOUBLE") else f"CAST({value} AS VARCHAR)"


def _literal(value: Any) -> str:
    text = str(value).replace("'", "''")
    return f"'{text}'"


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN and infinity are words."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)
