"""`sources.yml` for dbt: the tables and views of pipelines, with columns, freshness, and how an engine reads them.

For DuckDB a source is an external location that lists exactly the files of one commit, or a view that our plugin
(`dbt_duckdb.py`) makes of the last commit when dbt begins. For Spark it is a table or a view of the metastore, and the
statements that make it are in its `meta`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import yaml

from bridge.errors import SettingsError
from bridge.lake.log import Snapshot
from bridge.lake.paths import folder_name
from bridge.lake.records import TableState
from bridge.lake.run_status import fresh_since
from bridge.lake.table_columns import Entry, visible_columns
from bridge.lake.times import read_time
from bridge.load.tap.catalog_store import CatalogStore
from bridge.operate.readers.choice import reading_statement, table_of
from bridge.operate.readers.engines import DUCKDB, SPARK, SqlEngine
from bridge.protocol.singer.catalog import entries_by_name
from bridge.read.query.snapshot import TablesAt
from bridge.settings.options import Pipeline

Adapter = Literal["duckdb", "spark"]
LOADED_AT = "singer_bridge_loaded_at"
"""The function that our plugin gives DuckDB: when a pipeline last succeeded."""
HEADER = "# Written by `singer-bridge dbt sources`, which replaces this file: do not edit it.\n"
_TIMES = ("timestamp[us, UTC]", "date32")
_ENGINES: dict[str, SqlEngine] = {"duckdb": DUCKDB, "spark": SPARK}
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
"""A name that needs no quotes."""
_JINJA = re.compile(r"\{(?=[{%#])")


@dataclass(frozen=True, slots=True)
class DbtLake:
    """One pipeline at a commit, with what its project knows of it."""

    pipeline: Pipeline
    home: Path
    at: TablesAt

    @property
    def tables(self) -> dict[str, TableState]:
        """Its tables and views, without those that a rollback took back."""
        return {stream: self.at.snapshot.tables[stream] for stream in identifiers(self.at.snapshot)}

    @property
    def descriptions(self) -> dict[str, dict[str, Any]]:
        """The stored catalog's entry of each stream; empty without a catalog that can be read."""
        with suppress(SettingsError):
            return entries_by_name(CatalogStore(self.home, self.pipeline).read() or {"streams": []})
        return {}


@dataclass(frozen=True, slots=True)
class DbtOptions:
    """The options of the verb. `live`: by our plugin. `loaded_at`: the column that tells how fresh a table is."""

    adapter: Adapter = "duckdb"
    live: bool = False
    loaded_at: str | None = None


def sources(lakes: Sequence[DbtLake], options: DbtOptions) -> str:
    """The text of the file. Raises `SettingsError` if there is no table, or for a column that no table has."""
    if options.live and options.adapter != "duckdb":
        raise SettingsError("--live is a plugin of dbt-duckdb", hint="leave --live out, or --adapter")
    if not any(lake.tables for lake in lakes):
        raise SettingsError("there is no table yet", hint="run the pipeline first: singer-bridge run")
    described = [_source(lake, options) for lake in lakes if lake.tables]
    if options.loaded_at and not any(
        "loaded_at_field" in table["config"] for one in described for table in one["tables"]
    ):
        hint = "name a column with times, such as _sdc_batched_at (`destination.add_record_metadata`)"
        raise SettingsError("no table has this column of times", hint=hint, column=options.loaded_at)
    text = yaml.safe_dump(
        _without_jinja({"version": 2, "sources": described}), sort_keys=False, allow_unicode=True, width=1000
    )
    return HEADER + text


def identifiers(snapshot: Snapshot) -> dict[str, str]:
    """The tables that exist, each with its name in SQL: no two have one, whatever their case."""
    names = dict[str, str]()
    for stream, live in sorted(snapshot.tables.items()):
        if live.schema:
            names[stream] = folder_name(plain_name(live.folder.rpartition("/")[2]), names.values())
    return names


def plain_name(name: str) -> str:
    """A name that SQL takes without quotes."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
    return plain if re.match(r"[a-z]", plain) else f"t_{plain}"


def _without_jinja(value: Any) -> Any:
    """The same, with texts that dbt's templates leave as they are: it reads each text of the file as one."""
    if isinstance(value, str):
        return _JINJA.sub("{{ '{' }}", value)
    if isinstance(value, dict):
        return {key: _without_jinja(each) for key, each in value.items()}
    return [_without_jinja(each) for each in value] if isinstance(value, list) else value


def _source(lake: DbtLake, options: DbtOptions) -> dict[str, Any]:
    name, storage, commit = lake.pipeline.name, lake.at.log.storage, lake.at.snapshot.n
    config: dict[str, Any] = {"meta": {"bucket": storage.uri, **({} if options.live else {"commit": commit})}}
    if stale_after := lake.pipeline.stale_after:
        config["freshness"] = {"warn_after": _period(stale_after), "error_after": None}
    text = f"Pipeline {name} of singer-bridge" + ("" if options.live else f", as commit {commit} left it")
    return {
        "name": plain_name(name),
        "description": text,
        "loader": "singer-bridge",
        "schema": plain_name(name),
        "config": config,
        "tables": list(_tables(lake, options)),
    }


def _period(after: timedelta) -> dict[str, Any]:
    """A duration as dbt has it: in whole days, hours or minutes, rounded up."""
    minutes = -(-int(after.total_seconds()) // 60)
    for period, length in (("day", 1440), ("hour", 60)):
        if minutes % length == 0:
            return {"count": minutes // length, "period": period}
    return {"count": minutes, "period": "minute"}


def _tables(lake: DbtLake, options: DbtOptions) -> Iterator[dict[str, Any]]:
    names, descriptions, since = identifiers(lake.at.snapshot), lake.descriptions, _loaded_at(lake, options)
    for stream, live in lake.tables.items():
        columns = visible_columns(lake.at.log.storage, lake.at.log.pipeline, live)
        config: dict[str, Any] = {} if options.live else {"meta": _meta(lake, stream, live, options, names[stream])}
        types = {entry["name"]: entry["type"] for entry in columns}
        if options.loaded_at and types.get(options.loaded_at) in _TIMES:
            config["loaded_at_field"] = _ENGINES[options.adapter].name(options.loaded_at)
        elif since:
            config["loaded_at_query"] = since
        schema = descriptions.get(stream, {}).get("schema", {})
        yield {
            "name": stream,
            "identifier": names[stream],
            **({"description": text} if (text := live.view or _text(schema)) else {}),
            "config": config,
            "columns": [_column(entry, schema, _ENGINES[options.adapter]) for entry in columns],
        }


def _text(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, dict) else None
    return text if isinstance(text, str) else ""


def _column(entry: Entry, schema: Any, engine: SqlEngine) -> dict[str, Any]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    own = properties.get(entry.get("singer", entry["name"])) if isinstance(properties, dict) else None
    type_ = engine.type(entry["type"])
    return {
        "name": entry["name"],
        **({} if _PLAIN.fullmatch(entry["name"]) else {"quote": True}),
        **({"data_type": type_} if type_ else {}),
        **({"description": text} if (text := _text(own)) else {}),
    }


def _loaded_at(lake: DbtLake, options: DbtOptions) -> str | None:
    """The question that tells when the pipeline last succeeded; None if it never ran."""
    if options.live:
        return f"SELECT {LOADED_AT}({DUCKDB.text(lake.pipeline.name)})"
    since = fresh_since(lake.at.log.storage, lake.at.log.pipeline)
    if since is None:
        return None
    at = read_time(since.at).strftime("%Y-%m-%d %H:%M:%S")
    # dbt reads a time without a zone as UTC; Spark would show a TIMESTAMP in the zone of its session
    return f"SELECT {'TIMESTAMP' if options.adapter == 'duckdb' else 'TIMESTAMP_NTZ'} '{at}'"


def _meta(lake: DbtLake, stream: str, live: TableState, options: DbtOptions, name: str) -> dict[str, Any]:
    if options.adapter == "spark":
        return {"create": _spark(lake, stream, live, name)}
    return {"external_location": _location(lake, stream, live).replace("%", "%%"), "formatter": "oldstyle"}


def _location(lake: DbtLake, stream: str, live: TableState) -> str:
    """The relation that stands after FROM in DuckDB: exactly the files that the commit log names."""
    table = table_of(lake.at.log, stream, live, "duckdb", lake.pipeline.destination.store_options)
    if not live.files:
        empty = (f"CAST(NULL AS {DUCKDB.type(one['type'])}) AS {DUCKDB.name(one['name'])}" for one in table.columns)
        return f"(SELECT {', '.join(empty)} WHERE false)"
    files = ", ".join(DUCKDB.text(_duckdb_path(f"{table.path}/{name}")) for name in sorted(live.files))
    read = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    if not live.view:
        return read
    return f"(SELECT {', '.join(DUCKDB.name(entry['name']) for entry in table.columns)} FROM {read})"


def _duckdb_path(path: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", path)


def _spark(lake: DbtLake, stream: str, live: TableState, name: str) -> list[str]:
    """The statements that make the table in the metastore, or a view of a Delta or an Iceberg table."""
    own = f"{SPARK.name(plain_name(lake.pipeline.name))}.{SPARK.name(name)}"
    server = lake.pipeline.destination.store_options
    text = reading_statement(lake.at.log, stream, live, "spark", server, view=live.format != "parquet")
    statement = re.sub(r"^(--.*\n)*CREATE [A-Z ]+ `[^`]+`", "", text).strip().removesuffix(";")
    if live.format == "parquet":
        return [f"DROP TABLE IF EXISTS {own}", f"CREATE TABLE {own} {statement}"]
    return [f"CREATE OR REPLACE VIEW {own} {statement}"]
