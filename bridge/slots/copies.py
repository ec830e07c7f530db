"""The copies of a slot that the processes of a tap read: their names, which always fit, and making them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from bridge.errors import DatabaseUnreachable, SlotError
from bridge.slots.database import Database
from bridge.slots.keeper import drop
from bridge.tap.slot_source import SlotSource


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
