"""`source.replication_slot`: the slot of PostgreSQL from which LOG_BASED streams are read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from bridge.settings.values.section import Name, Section


class ReplicationSlot(Section):
    """The replication slot of PostgreSQL from which LOG_BASED streams are read."""

    guard: Annotated[
        Literal["auto", "off"],
        BeforeValidator(lambda value: "off" if value is False else value),  # YAML reads a bare `off` as false
        WithJsonSchema({"enum": ["auto", "off", False]}),
    ] = "auto"
    """`auto`: the tap reads a copy of PostgreSQL's replication slot, and the slot itself moves only after a commit.
    `off`: the tap moves the slot."""
    url: str | None = Field(default=None, repr=False)
    """How to connect to the database: `postgresql://user:password@host:port/database`. Default: as the tap's settings
    say. Needs the extra `postgres`."""
    setting: Name = None
    """The key in the tap's settings that names the slot, for a tap that singer-bridge does not know."""
