"""A plugin of dbt-duckdb: sources as the last commit left them at the moment when dbt began.

It reads through Arrow, so DuckDB needs no extension for S3, Azure, Google Cloud Storage, Delta or Iceberg. It needs
singer-bridge and dbt-duckdb in one environment, and writes nothing to the lake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt_common.exceptions import DbtRuntimeError

from bridge.errors import BridgeError
from bridge.lake.log import Log
from bridge.lake.presence import pipelines_in
from bridge.lake.run_status import fresh_since
from bridge.lake.storage import lake_of, open_storage
from bridge.lake.times import read_time
from bridge.operate.readers.engines import DUCKDB
from bridge.read.query.snapshot import TablesAt
from bridge.serve.orchestrate.dbt import LOADED_AT, identifiers, plain_name
from bridge.settings.load import read_settings


class Plugin(BasePlugin):  # type: ignore[misc]
    """Gives DuckDB a view of each table, for the sources of `singer-bridge dbt sources --live`.

    `config` of the profile: `file`, a bridge.yaml, and perhaps its `environment`; or `bucket`. dbt-duckdb's own way,
    `load`, fails where two threads of dbt ask for sources at once, so all views are made before the threads start.
    """

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        self._config = plugin_config

    @cached_property
    def _lakes(self) -> dict[str, TablesAt]:
        """The pipelines by name, each at one commit for as long as dbt runs."""
        try:
            return {log.pipeline: TablesAt.of(log, None) for log in self._logs()}
        except BridgeError as error:
            raise DbtRuntimeError(f"{error.message}. {error.hint}") from error

    @cached_property
    def _tables(self) -> dict[tuple[str, str], ds.Dataset]:
        """The tables by source and identifier."""
        return {
            (plain_name(pipeline), name): at.dataset(stream)
            for pipeline, at in self._lakes.items()
            for stream, name in identifiers(at.snapshot).items()
        }

    def configure_connection(self, conn: Any) -> None:
        self.configure_cursor(conn)
        for source in sorted({source for source, _ in self._tables}):
            conn.execute(f"CREATE SCHEMA IF NOT EXISTS {source}")
        for source, name in self._tables:
            conn.execute(f"CREATE OR REPLACE VIEW {source}.{name} AS SELECT * FROM {_handle(source, name)}")
        conn.create_function(LOADED_AT, self._loaded_at, ["VARCHAR"], "TIMESTAMP", side_effects=True)

    def configure_cursor(self, cursor: Any) -> None:
        for (source, name), table in self._tables.items():
            cursor.register(f"{source}__{name}", table)

    def _loaded_at(self, pipeline: str) -> datetime | None:
        """When the pipeline last succeeded, in UTC without a zone."""
        since = fresh_since(self._lakes[pipeline].log.storage, pipeline)
        return read_time(since.at).replace(tzinfo=None) if since else None

    def _logs(self) -> Iterator[Log]:
        if bucket := self._config.get("bucket"):
            storage = open_storage(os.fspath(bucket))
            yield from (Log(storage, name) for name in pipelines_in(storage))
            return
        settings = read_settings(Path(self._config.get("file", "bridge.yaml")), self._config.get("environment"))
        for name in settings.pipelines:
            pipeline = settings.pipeline(name, source=False)
            yield Log(lake_of(pipeline.destination), pipeline.name)


def _handle(source: str, name: str) -> str:
    return DUCKDB.name(f"{source}__{name}")
