"""Where the Iceberg tables of a pipeline are registered: `.bridge/<pipeline>/catalog.json`, and no secret in it.

Whoever opens the lake without settings (`recover`, `rollback`, `verify`) finds the catalog by this file. What is secret
comes from where pyiceberg looks for it by itself: `PYICEBERG_CATALOG__<NAME>__*`, or `~/.pyiceberg.yaml`.

Without such a file the catalog is SQLite's, in the bucket: `.bridge/catalog.db`, of a bucket that is a folder.

Others may write to the bucket. So what it says chooses no Python class, no SQLite file that is no catalog yet, and no
host that gets a secret of this machine: only settings name those, bridge.yaml or pyiceberg's own configuration.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.errors import CorruptLake, LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.settings.values.catalogs import NAMED, address, is_about_tables, is_harmless, without_secrets

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bridge.settings.options import Pipeline

DEFAULT_NAME = "lake"


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """Settings with which pyiceberg loads a catalog, and the pipeline's namespace in it. Nothing of it is secret."""

    name: str
    namespace: str
    properties: dict[str, str]


def facts_of(pipeline: Pipeline) -> CatalogFacts | None:
    """The catalog that the settings name; None if they name none."""
    catalog = pipeline.destination.catalog
    if catalog is None:
        return None
    return CatalogFacts(catalog.name, catalog.namespace.replace("{pipeline}", pipeline.name), catalog.properties)


def _key(pipeline: str) -> str:
    return pipeline_key(pipeline, "catalog.json")


def keep_catalog(storage: Storage, pipeline: Pipeline) -> None:
    """Note in the bucket where the settings register this pipeline's tables, and make sure that the catalog exists.

    Nothing is done for tables of another format.
    """
    if pipeline.destination.format != "iceberg":
        return
    key, facts = _key(pipeline.name), facts_of(pipeline)
    existing = storage.read(key)
    if facts is None:
        if existing is not None:
            storage.delete(key)
    elif existing != (data := dumps({"format": 1, **asdict(facts)}, indent=2)):
        storage.write(key, data)
    open_catalog(storage, facts or read_catalog(storage, pipeline.name))


def read_catalog(storage: Storage, pipeline: str) -> CatalogFacts:
    """The catalog that the bucket names, or the default one. Raises `LakeError` if there is neither.

    Raises `CorruptLake` for what none of our runs wrote there.
    """
    key = _key(pipeline)
    data = storage.read(key)
    if data is not None:
        facts = _parsed(key, data)
    elif storage.folder is None:
        hint = "set destination.catalog, and run the pipeline: it notes in the bucket where the tables are"
        raise LakeError("nothing says in which catalog the Iceberg tables are", hint=hint, file=key)
    else:
        facts = CatalogFacts(DEFAULT_NAME, pipeline, {"type": "sql", "uri": sqlite_uri(storage)})
    uri = facts.properties.get("uri", "")
    if uri.startswith("sqlite://") and not _is_catalog(storage, uri):
        hint = "see who may write to the bucket; if the catalog is to be there, run the pipeline: it makes it"
        raise CorruptLake("the catalog's file is outside of the bucket and no catalog", hint=hint, uri=uri, file=key)
    return facts


def _parsed(key: str, data: bytes) -> CatalogFacts:
    hint = "delete it, and run the pipeline: its settings say what was in it"
    try:
        raw = loads(data)
        facts = CatalogFacts(raw["name"], raw["namespace"], dict(raw["properties"]))
        if not (isinstance(facts.name, str) and isinstance(facts.namespace, str)):
            raise TypeError("name")
    except (NotJson, KeyError, TypeError, ValueError) as error:
        raise CorruptLake("catalog.json cannot be read", hint=hint, file=key) from error
    if refused := [name for name, value in facts.properties.items() if not is_harmless(name, value)]:
        raise CorruptLake("catalog.json has a property that no run writes", hint=hint, property=refused[0], file=key)
    return facts


def _is_catalog(storage: Storage, uri: str) -> bool:
    """Whether a SQLite file is in the bucket, or is an Iceberg catalog already: no other is to be written to."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        file = Path(make_url(uri).database or "")
        if not file.is_absolute():  # such as `file:/data/x.db`, which SQLite takes for another place than we do
            return False
        file = file.resolve()
        if storage.folder is not None and file.is_relative_to(storage.folder.resolve()):
            return True
        connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("SELECT 1 FROM iceberg_tables LIMIT 1")
        finally:
            connection.close()
    except (ArgumentError, ValueError, OSError, sqlite3.Error):
        return False
    return True


def sqlite_uri(storage: Storage) -> str:
    """The URI of the catalog that is a file of the bucket."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=f"{storage.uri}/.bridge/catalog.db").render_as_string()


def open_catalog(storage: Storage, facts: CatalogFacts) -> Catalog:
    """The catalog, which reads and writes metadata through the storage. Raises `LakeError`.

    Where this machine's configuration of pyiceberg says something else than the bucket, it wins. Raises `CorruptLake`
    if only the bucket names the catalog's host: it would get the secrets, or the password, that this machine has.
    """
    from pyiceberg.catalog import _ENV_CONFIG, load_catalog

    from bridge.lake.formats.iceberg.io import STORAGE, BucketIO

    own = _ENV_CONFIG.get_catalog_config(facts.name) or {}
    properties = {name: value for name, value in _believed(facts, own).items() if name not in own}
    try:
        kind = _kind(facts.name, properties | own)
        _prepare(kind, own)
        if storage.folder is not None:
            (storage.folder / ".bridge").mkdir(parents=True, exist_ok=True)
        catalog = load_catalog(facts.name, **properties)
        if kind == "hive":
            catalog.list_namespaces()  # pyiceberg connects to a metastore at the first question only
    except Exception as error:  # each kind of catalog raises what its own libraries do
        raise unreachable(facts, error) from error
    io = BucketIO({STORAGE: storage})
    through: dict[str, Any] = {"py-io-impl": f"{BucketIO.__module__}.{BucketIO.__name__}", STORAGE: storage}
    catalog.properties.update(through)
    # A table's own properties, which lie in the bucket, win over these.
    catalog._load_file_io = lambda *_, **__: io  # type: ignore[method-assign]
    return catalog


def _believed(facts: CatalogFacts, own: Mapping[str, Any]) -> dict[str, str]:
    """The properties to load the catalog with, beside those of pyiceberg's own configuration, `own`.

    Settings that name the same catalog are believed whole; the bucket's copy of them may have been changed.
    """
    where = address(facts.properties)
    if (named := NAMED.get((facts.name, where))) is not None:
        return named
    about_tables = {name: value for name, value in facts.properties.items() if is_about_tables(name, value)}
    if address(own):
        return about_tables
    if where.startswith("sqlite://") and about_tables.get("type", "sql").lower() == "sql":
        # A file that was looked at. The part behind `?` could name a library to load.
        return about_tables | {"type": "sql", "uri": where.partition("?")[0]}
    part = "uri" if "uri" in facts.properties else "type"
    hint = (
        f"if it is yours, name it on this machine: destination.catalog in bridge.yaml, or type "
        f"{_variable(facts.name, part)}={without_secrets(where)} before the command; if not, see who may write to the "
        "bucket"
    )
    raise CorruptLake(
        "only the bucket names this catalog, and it would get this machine's secrets",
        hint=hint,
        **{part: without_secrets(where)},
    )


def _variable(catalog: str, name: str) -> str:
    """The environment variable by which pyiceberg knows a catalog's property."""
    return f"PYICEBERG_CATALOG__{catalog.upper().replace('-', '_')}__{name.upper()}"


def _prepare(kind: str, own: Mapping[str, Any]) -> None:
    """Prepare pyiceberg for a catalog of that type. Each needs libraries that others do without."""
    if kind == "sql":
        from bridge.lake.formats.iceberg.sql import prepare_sql

        prepare_sql()
        return
    from bridge.lake.formats.iceberg.rest import prepare_rest

    prepare_rest(own)
    if kind == "hive":
        from bridge.lake.formats.iceberg.hive import prepare_hive

        prepare_hive()


def _kind(name: str, properties: Mapping[str, Any]) -> str:
    """The type of a catalog, as pyiceberg takes it: if none is set, the URI tells."""
    from pyiceberg.catalog import infer_catalog_type

    if isinstance(kind := properties.get("type"), str):
        return kind.lower()
    inferred = infer_catalog_type(name, dict(properties))
    return inferred.value if inferred else ""


def passing_errors() -> tuple[type[Exception], ...]:
    """Errors that a REST catalog raises for a while: it is busy, broken or silent. A commit may have had its effect."""
    import requests
    from pyiceberg import exceptions as kinds

    busy = (kinds.ServiceUnavailableError, kinds.TooManyRequestsError, kinds.ServerError)
    return (kinds.CommitStateUnknownException, *busy, requests.ConnectionError, requests.Timeout)


def unreachable(facts: CatalogFacts, error: BaseException) -> LakeError:
    """The error for a catalog that does not do what it is asked for; no secret of its URI is in it."""
    text = without_secrets((str(error).splitlines() or [""])[0]) or type(error).__name__
    hint = (
        "look at destination.catalog; what is secret belongs into the environment, such as "
        f"{_variable(facts.name, 'token')}"
    )
    if "timestamp with local time zone" in text:
        hint = 'Hive 2 has no such type: add to destination.catalog.properties: hive.hive2-compatible: "true"'
    return LakeError(f"the Iceberg catalog cannot be used: {text}", hint=hint, catalog=facts.name)
