"""The remains of a removed pipeline: in its lake, its database, the crontab; and what to type to remove them.

Nothing here removes anything: rows that took days to load are not deleted in passing.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, loads
from bridge.lake.log import Log
from bridge.lake.ownership import owners_of
from bridge.lake.paths import pipeline_key
from bridge.lake.presence import pipelines_in
from bridge.lake.storage import Storage
from bridge.lake.storage.local.folders import require_inside
from bridge.load.tap.process import find_executable
from bridge.load.tap.slot_source import slot_source
from bridge.load.tap.venv import Venv
from bridge.operate.project.crontab import installed, read_crontab
from bridge.settings.options import Pipeline


@dataclass(frozen=True, slots=True)
class Left:
    """One thing that stays, and what to type or to do to remove it."""

    what: str
    remove: str


def left_in_lake(pipeline: Pipeline, storage: Storage) -> Iterator[Left]:
    """Yield what a lake still has of a pipeline. Raises `LakeError` if it cannot be read."""
    if pipeline.name not in pipelines_in(storage):
        return
    log = Log(storage, pipeline.name)
    snapshot = log.snapshot(log.latest())
    rows = sum(table.rows for table in snapshot.tables.values())
    counts = (
        f"{len(snapshot.tables):,} table{'' if len(snapshot.tables) == 1 else 's'} with {rows:,} rows, and the STATE"
    )
    what = f"{pipeline.name} in {storage.uri}: {counts}. A pipeline of this name and bucket would go on from there"
    folders = sorted({table.folder for table in snapshot.tables.values()})
    if any({owner.pipeline for owner in owners_of(storage, folder)[0]} - {pipeline.name} for folder in folders):
        yield Left(what, "its tables are shared: their other pipelines need them, and its log")
        return
    catalog = "drop its tables in the Iceberg catalog, then " if pipeline.destination.catalog else ""
    yield Left(what, catalog + _deletion(pipeline, storage, _keys(storage, pipeline.name, folders)))


def _keys(storage: Storage, name: str, folders: Sequence[str]) -> list[str]:
    """The folders and files of a pipeline: with that of all its tables, if nobody else has one in it."""
    roots = {folder.rpartition("/")[0] for folder in folders} - {""}
    keys = [pipeline_key(name)]
    if len(roots) == 1 and _owns_all(storage, name, root := roots.pop()):
        return [root, f".bridge/tables/{root}", *keys]
    for folder in folders:
        above, _, last = f".bridge/tables/{folder}".rpartition("/")
        keys += [folder, *(f"{above}/{file}" for file in sorted(storage.list(above)) if file.startswith(f"{last}."))]
    return keys


def _owns_all(storage: Storage, name: str, root: str) -> bool:
    """Whether all tables in a folder are of this pipeline."""
    files = storage.walk(f".bridge/tables/{root}")
    owned = (f"{root}/{file.removesuffix('.json')}" for file in files if file.endswith(".json"))
    return all({owner.pipeline for owner in owners_of(storage, table)[0]} == {name} for table in owned)


def _deletion(pipeline: Pipeline, storage: Storage, keys: Collection[str]) -> str:
    """The command that deletes these keys. Raises `CorruptLake` if a linked folder leads out of the bucket."""
    if storage.folder is not None:
        require_inside(storage.folder, keys)  # rm follows a linked folder on the way
        return shlex.join(["rm", "-rf", *(str(Path(storage.folder) / key) for key in keys)])
    uris = [f"{storage.uri}/{key}" for key in keys]
    if storage.uri.startswith("s3://"):
        store = pipeline.destination.store_options
        endpoint = ["--endpoint-url", store.endpoint_url] if store and store.endpoint_url else []
        commands = [["aws", *endpoint, "s3", "rm", "--recursive", uri] for uri in uris]
        return " && ".join(map(shlex.join, commands))
    if storage.uri.startswith("gs://"):
        return shlex.join(["gcloud", "storage", "rm", "--recursive", *uris])
    return f"delete {', '.join(uris)}"


def left_slot(pipeline: Pipeline, home: Path, storage: Storage | None) -> Iterator[Left]:
    """The replication slot of PostgreSQL that a pipeline reads, as its lake or its settings name it."""
    name = ""
    stored = storage.read(pipeline_key(pipeline.name, "slot.json")) if storage else None
    with suppress(NotJson, KeyError, TypeError):
        name = str(loads(stored)["slot"]) if stored else ""
    if not name and any(keys.replication_method == "LOG_BASED" for keys in pipeline.streams.values()):
        source = slot_source(pipeline, _argv(pipeline, home))
        name = source.slot if source else ""
    if name:
        name = name.replace("'", "''")  # whoever may write to the bucket may have named it
        what = f"the replication slot {name} in the database, if it exists: it keeps the server's log until you drop it"
        yield Left(what, f"in the database: SELECT pg_drop_replication_slot('{name}');")


def _argv(pipeline: Pipeline, home: Path) -> list[str]:
    source = pipeline.source
    programs = Venv(home, source.pip_url).bin if source.pip_url else None
    with suppress(Exception):  # it need not be installed
        return find_executable(source.argv, programs, source.env)
    return source.argv


def left_in_crontab(folder: Path, names: Collection[str]) -> Iterator[Left]:
    """The lines of the crontab that would run the pipeline."""
    with suppress(SettingsError):  # no crontab, or none that can be read
        for line in sorted(installed(read_crontab(), folder)):
            if (name := line.partition(":")[0]) in names:
                yield Left(f"a line of your crontab, which would fail: {line}", f"singer-bridge schedule remove {name}")


def left_in_dotenv(variables: Sequence[str]) -> Iterator[Left]:
    """The variables that only the pipeline named."""
    if variables:
        yield Left(f"in .env or .env.example: {', '.join(variables)}", "delete these lines")
