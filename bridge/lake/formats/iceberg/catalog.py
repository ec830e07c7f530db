"""Where the Iceberg tables of a pipeline are registered: `.bridge/<pipeline>/catalog.json`, and no secret in it.

Whoever opens the lake without settings (`recover`, `rollback`, `verify`) finds the catalog by this file. What is secret
comes from where pyiceberg looks for it by itself: `PYICEBERG_CATALOG__<NAME>__*`, or `~/.pyiceberg.yaml`.

Without such a file the catalog is SQLite's, in the bucket: `.bridge/catalog.db`, of a bucket that is a folder.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import CorruptLake, LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import meta
from bridge.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bridge.settings.options import Pipeline

DEFAULT_NAME = "lake"
_KEYS = re.compile(r"://[^@/\s]*@")
"""What a URI says of who comes."""


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """What pyiceberg is told to load a catalog, and where in it the pipeline's tables are. Nothing of it is secret."""

    name: str
    namespace: str
    properties: dict[str, str]


def facts_of(pipeline: Pipeline) -> CatalogFacts | None:
    """Return what the settings say, None for nothing."""
    said = pipeline.destination.catalog
    if said is None:
        return None
    return CatalogFacts(said.name, said.namespace.replace("{pipeline}", pipeline.name), said.properties)


def _key(pipeline: str) -> str:
    return meta(pipeline, "catalog.json")


def keep_catalog(storage: Storage, pipeline: Pipeline) -> None:
    """Have the bucket say where this pipeline's tables are registered, as the settings do; and see that it is there.

    Nothing is done for tables of another format.
    """
    if pipeline.destination.format != "iceberg":
        return
    key, facts = _key(pipeline.name), facts_of(pipeline)
    there = storage.read(key)
    if facts is None:
        if there is not None:
            storage.delete(key)
    elif there != (said := dumps({"format": 1, **asdict(facts)}, indent=2)):
        storage.write(key, said)
    open_catalog(storage, read_catalog(storage, pipeline.name))


def read_catalog(storage: Storage, pipeline: str) -> CatalogFacts:
    """Return what the bucket says of the catalog. Raises `LakeError` where that is nothing, and there is no default."""
    data = storage.read(_key(pipeline))
    if data is not None:
        try:
            said = loads(data)
            return CatalogFacts(said["name"], said["namespace"], dict(said["properties"]))
        except (NotJson, KeyError, TypeError, ValueError) as error:
            hint = "delete it, and run the pipeline: its settings say what was in it"
            raise CorruptLake("catalog.json cannot be read", hint=hint, file=_key(pipeline)) from error
    if storage.folder is None:
        hint = "set destination.catalog, and run the pipeline: it notes in the bucket where the tables are"
        raise LakeError("nothing says in which catalog the Iceberg tables are", hint=hint, file=_key(pipeline))
    return CatalogFacts(DEFAULT_NAME, pipeline, {"type": "sql", "uri": sqlite_uri(storage)})


def sqlite_uri(storage: Storage) -> str:
    """Return the URI of the catalog that is a file of the bucket."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=f"{storage.uri}/.bridge/catalog.db").render_as_string()


def open_catalog(storage: Storage, facts: CatalogFacts) -> Catalog:
    """Return the catalog, which reads and writes metadata through the storage. Raises `LakeError`."""
    from pyiceberg.catalog import load_catalog

    from bridge.lake.formats.iceberg.io import STORAGE, BucketIO

    try:
        if storage.folder is not None:
            (storage.folder / ".bridge").mkdir(parents=True, exist_ok=True)
        catalog = load_catalog(facts.name, **facts.properties)
    except Exception as error:  # each kind of catalog raises what its own libraries do
        raise unreachable(facts, error) from error
    through: dict[str, Any] = {"py-io-impl": f"{BucketIO.__module__}.{BucketIO.__name__}", STORAGE: storage}
    catalog.properties.update(through)
    _let_connections_go(catalog)
    return catalog


def _let_connections_go(catalog: Catalog) -> None:
    """Have a catalog in a database hold no connection between two commits, which may be minutes apart."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    if isinstance(catalog, SqlCatalog):
        catalog.engine.dispose()
        catalog.engine = create_engine(catalog.engine.url, poolclass=NullPool)


def unreachable(facts: CatalogFacts, error: BaseException) -> LakeError:
    """Return the error for a catalog that does not do what it is asked for; no secret of its URI is in it."""
    text = _KEYS.sub("://", (str(error).splitlines() or [""])[0]) or type(error).__name__
    hint = (
        "look at destination.catalog; what is secret belongs into the environment, such as "
        f"PYICEBERG_CATALOG__{facts.name.upper().replace('-', '_')}__TOKEN"
    )
    return LakeError(f"the Iceberg catalog cannot be used: {text}", hint=hint, catalog=facts.name)
