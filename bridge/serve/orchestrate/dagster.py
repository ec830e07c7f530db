"""Assets of Dagster: `assets("bridge.yaml")` has one asset for each stream and view, and loads them as one run does.

A pipeline is one multi-asset, so that a materialization is one run, with one STATE. What is in the lake counts: an
asset is materialized only if its stream is complete, also in a run that failed. Dagster's own retries start a new run,
which goes on from the last commit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    DataVersion,
    Failure,
    Field,
    FreshnessPolicy,
    MaterializeResult,
    MetadataValue,
    RetryPolicy,
    TableColumn,
    TableSchema,
    multi_asset,
)

from bridge.errors import BridgeError, LakeError, SettingsError
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import TableState
from bridge.lake.storage import lake_of
from bridge.lake.table_columns import visible_columns, words
from bridge.lake.times import read_time
from bridge.load.run.result import Counts, Result
from bridge.load.tap.catalog_store import CatalogStore, with_names
from bridge.load.tap.source import home_folder
from bridge.protocol.singer.catalog import entries_by_name, record_name
from bridge.protocol.singer.selection import loaded_streams
from bridge.protocol.singer.state import bookmark
from bridge.serve.launch.project import Project
from bridge.settings.load import read_settings
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import read_view

__all__ = ["assets"]

_SHORTEST = timedelta(minutes=1)
"""Dagster's shortest window of freshness."""


def assets(
    file: str | Path = "bridge.yaml",
    pipelines: str | Sequence[str] = (),
    *,
    environment: str | None = None,
    streams: Mapping[str, Sequence[str]] | None = None,
    key_prefix: Sequence[str] = (),
    retry_policy: RetryPolicy | None = None,
    timeout: timedelta | None = None,
    wait: timedelta | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> list[AssetsDefinition]:
    """The assets of a project: of some pipelines, by default of all. A key is `[*key_prefix, pipeline, stream]`.

    Streams are those of the stored catalog that are selected, else those with a table. `streams` names them for
    pipelines that have neither; without, such a pipeline raises `SettingsError`. `timeout` and `wait` are the run's.
    """
    path = Path(file).absolute()
    settings = read_settings(path, environment)
    names = [pipelines] if isinstance(pipelines, str) else list(pipelines) or list(settings.pipelines)
    return [
        _DefinitionsLoader(
            name=name,
            pipeline=with_names(settings.pipeline(name), home_folder(path)),
            home=home_folder(path),
            project=Project(path, environment=environment),
            prefix=tuple(key_prefix),
            timeout=timeout,
            wait=wait,
        ).assets((streams or {}).get(name, ()), retry_policy, op_tags)
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class _DefinitionsLoader:
    """One pipeline as a multi-asset. `name`: in the file; the pipeline's own begins with its environment."""

    name: str
    pipeline: Pipeline
    home: Path
    project: Project
    prefix: tuple[str, ...]
    timeout: timedelta | None
    wait: timedelta | None

    def assets(
        self, streams: Sequence[str], retry_policy: RetryPolicy | None, op_tags: Mapping[str, Any] | None
    ) -> AssetsDefinition:
        specs = list(self._specs(streams))
        every = {spec.key for spec in specs}  # a selection narrows the keys that the context knows

        def load(context: AssetExecutionContext) -> Iterable[MaterializeResult[Any]]:
            yield from self._run(context, whole=context.selected_asset_keys == every)

        load.__annotations__ = {"context": AssetExecutionContext}  # Dagster compares the class, not its name
        return multi_asset(
            name=_plain("__".join((*self.prefix, self.name))),
            specs=specs,
            can_subset=True,
            retry_policy=retry_policy,
            op_tags=op_tags,
            config_schema={"full": Field(bool, default_value=False, description="Load from the beginning.")},
        )(load)

    def _key(self, stream: str) -> AssetKey:
        return AssetKey([*self.prefix, self.name, stream])

    def _specs(self, given: Sequence[str]) -> Iterator[AssetSpec]:
        entries, view = self._entries(), self._view()
        streams = list(given) or sorted(entries) or sorted(view.stream_tables)
        if not streams:
            hint = f"`singer-bridge discover {self.name}`, or run it once; or name them: streams={{...}}"
            raise SettingsError("nobody knows the streams of this pipeline yet", hint=hint, pipeline=self.pipeline.name)
        stale_after = self.pipeline.stale_after
        own = {
            "group_name": _plain(self.name),
            "kinds": {"singer", self.pipeline.destination.format},
            "freshness_policy": FreshnessPolicy.time_window(fail_window=max(stale_after, _SHORTEST))
            if stale_after
            else None,
            "metadata": {"dagster/uri": lake_of(self.pipeline.destination).uri, "pipeline": self.pipeline.name},
        }
        for stream in streams:
            text = entries.get(stream, {}).get("schema", {}).get("description")
            yield AssetSpec(self._key(stream), description=text if isinstance(text, str) else None, **own)
        for name, sql in self.pipeline.views.items():
            base = read_view(name, sql).stream
            deps = [self._key(stream) for stream in streams if base in self.pipeline.names_of(stream)]
            yield AssetSpec(self._key(name), deps=deps, description=sql, **own)

    def _entries(self) -> dict[str, Any]:
        """The selected streams of the stored catalog, by the name of their table."""
        catalog = CatalogStore(self.home, self.pipeline).read()
        if catalog is None:
            return {}
        ids, by_name = loaded_streams(catalog, self.pipeline.source.select), entries_by_name(catalog)
        return {record_name(by_name[name]): by_name[name] for name in ids}

    def _view(self) -> Snapshot:
        """The lake after the last commit; empty if it cannot be read now: a code location must load all the same."""
        log = Log(lake_of(self.pipeline.destination), self.pipeline.name)
        try:
            return log.snapshot(log.latest())
        except LakeError:
            return Snapshot(0)

    def _run(self, context: AssetExecutionContext, *, whole: bool) -> Iterator[MaterializeResult[Any]]:
        """Run the pipeline and yield what is complete. Raises `Failure` with the run's message and hint."""
        names = {key.path[-1] for key in context.selected_asset_keys}
        bases = {name: read_view(name, sql).stream for name, sql in self.pipeline.views.items()}
        streams = () if whole else sorted({bases.get(name, name) for name in names})
        full, failed = bool(context.op_execution_context.op_config["full"]), None
        try:
            result = self.project.run(self.name, full=full, streams=streams, timeout=self.timeout, wait=self.wait)
        except BridgeError as error:
            failed, result = error, error.result
        if result:
            for warning in result.warnings:
                context.log.warning(warning)
            complete = {name for name in names if not failed or self._is_complete(result, bases.get(name, name))}
            if complete:  # a view comes after its stream
                yield from self._results(result, sorted(complete, key=lambda name: (name in bases, name)))
        if failed:
            raise _failure(failed, result) from failed

    def _counts(self, result: Result, stream: str) -> Counts | None:
        return next((result.streams[name] for name in self.pipeline.names_of(stream) if name in result.streams), None)

    def _is_complete(self, result: Result, stream: str) -> bool:
        counts = self._counts(result, stream)
        return counts is not None and counts.is_complete

    def _results(self, result: Result, names: Iterable[str]) -> Iterator[MaterializeResult[Any]]:
        log = Log(lake_of(self.pipeline.destination), self.pipeline.name)
        snapshot, now = log.snapshot(log.latest()), datetime.now(timezone.utc)
        for name in names:
            names_of = self.pipeline.names_of(name)
            live = snapshot.table(names_of)
            moved = next(
                (snapshot.bookmark_changed_at[one] for one in names_of if one in snapshot.bookmark_changed_at), None
            )
            facts = _of_run(self._counts(result, name), bookmark(snapshot.state, names_of), moved)
            metadata = {
                "run_id": result.run_id,
                "commit": result.commit,
                "loaded_at": MetadataValue.timestamp(now),
                **(facts if name not in self.pipeline.views else {}),
                **(_of_table(log, live) if live else {"dagster/row_count": 0}),
            }
            version = DataVersion(_version(live)) if live else None
            yield MaterializeResult(asset_key=self._key(name), metadata=metadata, data_version=version)


def _of_run(counts: Counts | None, mark: Any, moved: str | None) -> dict[str, Any]:
    """The run's counts for a stream, and the stream's bookmark."""
    facts: dict[str, Any] = {"rows": counts.committed if counts else 0, "rejected": counts.rejected if counts else 0}
    if mark is not None:
        facts["bookmark"] = MetadataValue.json(mark)
    if moved is not None:
        facts["bookmark_moved_at"] = MetadataValue.timestamp(read_time(moved))
    return facts


def _of_table(log: Log, live: TableState) -> dict[str, Any]:
    """The metadata of a table as it is now."""
    columns = [
        TableColumn(entry["name"], words(entry["type"])) for entry in visible_columns(log.storage, log.pipeline, live)
    ]
    return {
        "dagster/row_count": live.rows,
        "dagster/column_schema": MetadataValue.table_schema(TableSchema(columns)),
        "files": len(live.files),
        "bytes": sum(file.size for file in live.files.values()),
    }


def _version(live: TableState) -> str:
    """A text that changes when the table does: assets that depend on it are stale then, and not after an empty run."""
    return hashlib.sha256("\n".join([str(live.schema), *sorted(live.files)]).encode()).hexdigest()[:16]


def _failure(error: BridgeError, result: Result | None) -> Failure:
    """Dagster's failure. Wrong settings are not tried again."""
    facts = {"error": type(error).__name__, "hint": error.hint, "exit_code": error.exit_code}
    run = {"run_id": result.run_id, "status": result.status} if result else {}
    text = f"{error.message}. {error.hint}" if error.hint else error.message
    return Failure(text, metadata=facts | run, allow_retries=not isinstance(error, SettingsError))


def _plain(name: str) -> str:
    """A name for a group or an op."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)
