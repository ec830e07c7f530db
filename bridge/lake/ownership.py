"""Whose a table folder is: one stream of one pipeline, or several that share it and only ever add files to it.

`.bridge/tables/<folder>.json` says it, and is written before the first file. Nobody removes a file of another log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from bridge.errors import CorruptLake, LakeError
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.attempts import attempts
from bridge.lake.storage.protocol import Swap


@dataclass(frozen=True, slots=True)
class Owner:
    """One stream of one pipeline."""

    pipeline: str
    stream: str


def _key(folder: str) -> str:
    return f".bridge/tables/{folder}.json"


def _document(owners: list[Owner], *, shared: bool) -> bytes:
    first, *others = ({"pipeline": owner.pipeline, "stream": owner.stream} for owner in owners)
    return orjson.dumps({"format": 1, **first, **({"shared": True, "with": others} if shared else {})})


def _read(key: str, data: bytes) -> tuple[list[Owner], bool]:
    try:
        document: dict[str, Any] = orjson.loads(data)
        owners = [Owner(str(one["pipeline"]), str(one["stream"])) for one in (document, *document.get("with", []))]
        return owners, document.get("shared") is True
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        hint = "it says whose the table is: restore it from a backup, or delete it if the table is this pipeline's"
        raise CorruptLake("a table's owner is unreadable", hint=hint, file=key) from error


def owners_of(storage: Storage, folder: str) -> tuple[list[Owner], bool]:
    """Who owns a table folder, and whether they share it. Raises `CorruptLake` if that is unreadable."""
    data = storage.read(_key(folder))
    return _read(_key(folder), data) if data is not None else ([], False)


def owned_by(storage: Storage, folder: str, pipeline: str) -> bool:
    """Whether this pipeline alone owns a table folder."""
    return {owner.pipeline for owner in owners_of(storage, folder)[0]} == {pipeline}


def require_own(storage: Storage, pipeline: str, folders: Iterable[str]) -> None:
    """Raise `CorruptLake` for a table folder of other pipelines, which no log of this one may change."""
    for folder in folders:
        owners = {owner.pipeline for owner in owners_of(storage, folder)[0]}
        if owners and pipeline not in owners:
            hint = "somebody else wrote it: see who may write to the bucket; nothing was changed"
            facts = {"folder": folder, "pipeline": pipeline, "owner": min(owners)}
            raise CorruptLake("the commit log names a table of another pipeline", hint=hint, **facts)


def claim(storage: Storage, folder: str, me: Owner, *, shared: bool) -> list[Owner]:
    """Become an owner of a table folder; return the others who share it. Raises `LakeError` if somebody else owns it.

    `shared`: we only append, and others may append, too.
    """
    key = _key(folder)
    for _ in attempts(key):
        stored = storage.read_versioned(key)
        if stored is None:
            if storage.put_if_absent(key, _document([me], shared=shared)):
                return []
            continue
        owners, open_to_others = _read(key, stored.data)
        others = _others(folder, owners, me, may_share=shared and open_to_others)
        data = _document([*others, me], shared=True) if others else _document([me], shared=shared)
        if (me in owners and open_to_others == shared) or storage.compare_and_swap(key, data, stored.etag):
            return others
    raise AssertionError("unreachable")


def claim_all(storage: Storage, owners: Mapping[str, Owner]) -> None:
    """Become the only owner of many table folders. Raises `LakeError` if somebody else owns one."""
    swaps = [Swap(_key(folder), _document([me], shared=False), None) for folder, me in owners.items()]
    for (folder, me), version in zip(owners.items(), storage.swap_all(swaps), strict=True):
        if version is None:  # there is an owner
            claim(storage, folder, me, shared=False)


def others_of(storage: Storage, folder: str, me: Owner, *, shared: bool) -> list[Owner]:
    """The others who share a table folder; nothing is written. Raises `LakeError` where `claim` would."""
    owners, open_to_others = owners_of(storage, folder)
    return _others(folder, owners, me, may_share=shared and open_to_others)


def _others(folder: str, owners: list[Owner], me: Owner, *, may_share: bool) -> list[Owner]:
    others = [owner for owner in owners if owner != me]
    if others and not may_share:
        raise belongs_to(folder, others[0].pipeline, others[0].stream)
    return others


def belongs_to(folder: str, pipeline: str, stream: str) -> LakeError:
    """The error for a table folder that is another pipeline's."""
    hint = "give this pipeline another destination.path, or set `shared: true` in both, and only append"
    return LakeError(
        "the table belongs to another pipeline", hint=hint, folder=folder, pipeline=pipeline, stream=stream
    )


def tables_of(storage: Storage, owners: list[Owner]) -> dict[Owner, TableState]:
    """The tables that other owners have in a shared folder, as their logs say now."""
    tables = {}
    for owner in owners:
        log = Log(storage, owner.pipeline)
        if table := log.snapshot(log.latest()).tables.get(owner.stream):
            tables[owner] = table
    return tables


def strangers(storage: Storage, table: TableState, others: list[Owner]) -> list[str]:
    """The names of a folder's Parquet files that neither our log nor another owner's log knows."""
    names = [name for name in storage.walk(table.folder) if name.endswith(".parquet")]  # before the logs are read
    owned = set(table.files).union(*(other.files for other in tables_of(storage, others).values()))
    return sorted(name for name in names if name not in owned)
