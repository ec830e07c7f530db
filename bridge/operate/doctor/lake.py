"""Checks of the bucket and of the spool. Each is tried under a name that no reader sees, then removed.

If the bucket does not exist yet, the nearest folder above it is tried. Nothing is left behind, not even a folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bridge.errors import LakeError
from bridge.findings import Check, Finding, fine, run_checks, warning
from bridge.lake.bucket_checks import bucket_checks
from bridge.lake.formats.iceberg.catalog import facts_of, open_catalog, unreachable
from bridge.lake.formats.registry import installed
from bridge.lake.lease import holder, silence
from bridge.lake.log import Log
from bridge.lake.storage import Storage, lake_of
from bridge.lake.storage.local.folders import nearest
from bridge.operate.doctor.contents import content_checks
from bridge.settings.options import Pipeline


def _format(kind: str) -> Iterator[Finding]:
    yield fine("format", f"{kind}, by {installed(kind)}")


def _catalog(pipeline: Pipeline, bucket: Storage) -> Iterator[Finding]:
    """A catalog that does not answer ends a run before its tap starts."""
    installed("iceberg")
    facts = facts_of(pipeline)
    if facts is None:
        yield fine("catalog", f"a SQLite file, {bucket.uri}/.bridge/catalog.db; the first run makes it")
        return
    catalog = open_catalog(bucket, facts)
    try:
        catalog.list_namespaces()
    except Exception as failure:  # each kind of catalog raises what its own libraries do
        raise unreachable(facts, failure) from failure
    yield fine("catalog", f"{facts.name} answers; the tables are in {facts.namespace}")


def lake_checks(pipeline: Pipeline, storage: Storage | None = None) -> list[Check]:
    """The checks of a pipeline's bucket."""
    bucket, kind = storage or lake_of(pipeline.destination), pipeline.destination.format
    first: list[Check] = [
        *([("format", lambda: _format(kind))] if kind != "parquet" else []),
        *([("catalog", lambda: _catalog(pipeline, bucket))] if kind == "iceberg" else []),
    ]
    last: list[Check] = [
        ("commit log", lambda: _log(bucket, pipeline)),
        ("lease", lambda: _lease(bucket, pipeline.name)),
    ]
    return bucket_checks(pipeline, bucket, first, last)


def spool_checks(pipeline: Pipeline, home: Path) -> list[Check]:
    """The checks of the scratch on this machine."""
    folder = pipeline.spool.folder or home / "spool"
    return [("spool", lambda: _spool(folder, pipeline.spool.max_bytes))]


def _log(storage: Storage, pipeline: Pipeline) -> Iterator[Finding]:
    log = Log(storage, pipeline.name)
    head = log.latest()
    tables = len(log.snapshot(head).tables) if head else 0
    yield fine("commit log", f"commits: {head}, tables: {tables}" if head else "empty: nothing is loaded yet")
    yield from run_checks(content_checks(storage, pipeline))


def _lease(storage: Storage, pipeline: str) -> Iterator[Finding]:
    owner = holder(storage, pipeline)
    if owner is None:
        yield fine("lease", "nobody holds this pipeline")
        return
    who = ", ".join(f"{key} {owner.get(key, 'unknown')}" for key in ("run", "pid", "host", "since"))
    if silence(owner):
        hint = "it may be dead; the next run waits for a sign of life, then takes over. To take over now: "
        yield warning("lease", f"held by {who}, who no longer renews it", f"{hint}singer-bridge unlock")
    else:
        yield warning("lease", f"held by {who}", "a run is under way; wait for it, or end it by its pid")


def _spool(folder: Path, max_bytes: int) -> Iterator[Finding]:
    existing = nearest(folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = "set spool.dir, or SINGER_BRIDGE_HOME, to a folder that is"
        raise LakeError("this user cannot write to the spool", hint=hint, folder=existing)
    free = shutil.disk_usage(existing).free
    text = f"{free / (1 << 30):.1f} GiB free at {folder}, spool.max_bytes is {max_bytes / (1 << 30):.1f} GiB"
    if free < max_bytes:
        yield warning("spool", text, "free some space, lower spool.max_bytes, or set spool.dir to a larger disk")
    else:
        yield fine("spool", text)
