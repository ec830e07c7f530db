"""One extraction of all rows of a source, into a lake that is deleted afterwards: STATE and tables stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from pathlib import Path
from typing import Any

from bridge.errors import PipelineHeld, SettingsError
from bridge.exact_json import dumps
from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.load.run.result import Counts
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.load.tap.catalog_overrides import in_full
from bridge.load.tap.source import Source
from bridge.protocol.singer.catalog import (
    Catalog,
    entries_by_name,
    key_properties,
    replication_key,
    selected_streams,
    stream_names,
)
from bridge.protocol.singer.selection import select
from bridge.read.query.snapshot import TablesAt
from bridge.settings.destination import OVERWRITE, UPSERT
from bridge.settings.options import Pipeline, is_local
from bridge.settings.values.request import Request

Shown = Callable[[Run], AbstractContextManager[object]]
"""Shows a run to people while it works."""


@dataclass(frozen=True, slots=True)
class Swept:
    """All rows of the source, in a lake of their own."""

    run_id: str
    tables: TablesAt
    counts: Mapping[str, Counts]
    """By stream, of those of which anything came."""
    catalog: Catalog | None
    """As a run has it, with its replication keys."""
    spill: Path
    """A folder that is deleted at the end, too."""

    @property
    def streams(self) -> set[str] | None:
        """All names of the streams that were asked for; None: the tap chose."""
        names = stream_names(self.catalog) if self.catalog else {}
        return {name for one in selected_streams(self.catalog) for name in names[one]} if self.catalog else None

    def replication_key(self, stream: str) -> str:
        """The property by which its runs go on; empty if there is none."""
        counts = self.counts[stream]
        keys = (replication_key(self.catalog, name) for name in counts.names)
        return next(filter(None, keys), counts.replication_key)


@contextmanager
def swept(
    pipeline: Pipeline,
    home: Path,
    streams: Sequence[str],
    stop: Stop,
    shown: Shown,
    *,
    keys_only: bool,
    merged: Collection[str],
) -> Iterator[Swept]:
    """Extract all rows of these streams; without any, of all that are selected. They are deleted at the end.

    `keys_only`: of streams with a key, no other columns are selected but the key's and the replication key. Rows of
    streams that are `merged` are so here, too: of several with one key the last one counts.

    Raises `BridgeError` if the extraction fails: half of a source proves nothing.
    """
    if not is_local(pipeline.spark.master):
        hint = 'add to the pipeline spark: {master: "local[*]"} for this verb, in an environment or another file'
        raise SettingsError("reconcile extracts on this machine, not on a cluster", hint=hint)
    with _folder(home / "reconcile", pipeline.name) as folder:
        catalog, _ = Source(pipeline, home, stop.tick).catalog(streams, refresh=False, compare=False)
        whole = _whole(pipeline, catalog, keys_only=keys_only) if catalog else None
        asked = Request(streams=tuple(streams), guard=False)
        run = Run(_trial(pipeline, whole, folder, merged), asked, home, stop=stop, is_trial=True)
        with shown(run):
            result = run.execute()
        if result.error:
            raise result.error
        log = Log(open_storage(str(folder / "lake")), pipeline.name)
        yield Swept(result.run_id, TablesAt.of(log, None), result.streams, catalog, folder / "spill")


@contextmanager
def _folder(above: Path, name: str) -> Iterator[Path]:
    """A folder that only we use, and that is deleted at the end; one that a killed process left goes first."""
    try:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = (above / f"{name}.lock").open("w")
    except OSError as error:
        hint = "free some space there, or make it yours; SINGER_BRIDGE_HOME names another folder"
        raise SettingsError(f"no folder for the source's rows: {error.strerror}", hint=hint, folder=above) from error
    with opened as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            hint = "wait for it to end, or stop it"
            raise PipelineHeld("the pipeline is being compared already", hint=hint, pipeline=name) from None
        shutil.rmtree(above / name, ignore_errors=True)
        (above / name).mkdir()
        try:
            yield above / name
        finally:
            shutil.rmtree(above / name, ignore_errors=True)


def _trial(pipeline: Pipeline, catalog: Catalog | None, folder: Path, merged: Collection[str]) -> Pipeline:
    """The pipeline that loads what this catalog selects into a lake in `folder`."""
    plain = {"format": "parquet", "partition_by": [], "sort_by": [], "shared": False, "catalog": None}
    plain |= {"load_method": OVERWRITE}
    destination = {"bucket": str(folder / "lake"), "s3": None, "azure": None, "gcs": None, **plain}
    source: dict[str, Any] = {"check_counts": "never"}
    decided: dict[str, Any] = dict.fromkeys(("partition_by", "sort_by", "guard", "load_method", "on_error"))
    decided |= dict.fromkeys(("sequence", "track", "ignore"))  # the source has no versions
    if catalog is not None:
        source |= {"catalog": folder / "catalog.json", "select": []}
        (folder / "catalog.json").write_bytes(dumps(catalog))
        decided |= {"replication_method": None, "replication_key": None}  # the catalog has what they say
    streams = {glob: keys.model_copy(update=decided) for glob, keys in pipeline.streams.items()}
    changed = {
        "streams": streams,
        "views": {},
        "source": pipeline.source.model_copy(update=source),
        "destination": pipeline.destination.model_copy(update=destination),
        "looks_up_in": pipeline.destination,
    }
    pipeline = pipeline.model_copy(update=changed)
    for stream in merged:
        pipeline = pipeline.with_stream(stream, {"load_method": UPSERT})
    return pipeline


def _whole(pipeline: Pipeline, catalog: Catalog, *, keys_only: bool) -> Catalog:
    """The catalog by which the selected streams come from their beginning, without a bookmark."""
    chosen = selected_streams(catalog)
    narrowed = select(catalog, _only_keys(pipeline, catalog, chosen)) if keys_only else catalog
    return in_full(narrowed, chosen)


def _only_keys(pipeline: Pipeline, catalog: Catalog, streams: set[str]) -> list[str]:
    """Patterns that select each stream's key and replication key, but all of one without a key or with a transform."""
    patterns, entries = list[str](), entries_by_name(catalog)
    for stream in sorted(streams):
        settings, entry = pipeline.stream(stream), entries[stream]
        keys = key_properties(entry) if settings.key_properties is None else settings.key_properties
        marks = [replication_key(catalog, stream)]
        columns = [escape(name) for name in (*keys, *marks) if name] if keys and settings.transform is None else []
        patterns += [f"{escape(stream)}.{name}" for name in columns] or [escape(stream)]
    return patterns
