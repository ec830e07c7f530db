"""The copies of a slot that the processes of a tap read: their names, which always fit, and making them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from bridge.errors import DatabaseUnreachable, SlotError
from bridge.load.slots.database import Database
from bridge.load.slots.keeper import drop
from bridge.load.tap.slot_source import SlotSource

_COPY = re.compile(r"(?:^|_)bridge_[0-9a-f]{10}_[0-9a-f]{6}_[0-9]+\Z")
_HASH = re.compile(r"[0-9a-f]+")
_LEAST = len("bridge_0123456789_012345_0") + 3
"""Room in which the name of every copy fits as it is."""


class NoRights(Exception):
    """The database does not let us copy slots."""


def prefix(uri: str, pipeline: str) -> str:
    """The prefix of the names of this pipeline's copies, and of no other's."""
    return f"bridge_{hashlib.sha256(f'{uri} {pipeline}'.encode()).hexdigest()[:10]}"


def names(
    source: SlotSource, run: str, processes: Sequence[Collection[str]], streams: Collection[str], prefix: str
) -> list[tuple[str, str] | None]:
    """For each process with LOG_BASED streams, the name of its copy and the setting for it."""
    result = list[tuple[str, str] | None]()
    digest = hashlib.sha256(run.encode()).hexdigest()[:6]
    for number, own in enumerate(processes):
        name = f"{prefix}_{digest}_{number}"
        if len(name) > source.room:
            name = hashlib.sha256(name.encode()).hexdigest()[: source.room]
        result.append(None if set(own).isdisjoint(streams) else source.named(name))
    return result


def own(source: SlotSource, noted: Collection[str]) -> list[str]:
    """The noted names that `names` may have given: others may write to the bucket, but have no slot dropped.

    The bucket may have had another URI then.
    """
    return [name for name in noted if name != source.slot and (_COPY.search(name) or _is_hashed(source, name))]


def _is_hashed(source: SlotSource, name: str) -> bool:
    part = name[-source.room :]
    return source.room < _LEAST and _HASH.fullmatch(part) is not None and name == source.named(part)[0]


def copy(source: SlotSource, database: Database, copies: Sequence[str]) -> None:
    """Make copies of the slot. Raises `SlotError`, or `NoRights`."""
    try:
        for name in copies:
            database.copy(source.slot, name)
    except SlotError as error:
        if isinstance(error, DatabaseUnreachable):
            raise
        drop(database, list(copies))
        if error.hint:
            raise
        if type(error.__cause__).__name__ == "InsufficientPrivilege":
            raise NoRights(f"the database refuses it: {error.message}") from error
        hint = "raise max_replication_slots, or lower source.parallelism; or set source.replication_slot.guard to off"
        raise SlotError(f"the replication slot cannot be copied: {error.message}", hint=hint) from error
