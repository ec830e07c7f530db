"""The settings of one pipeline as frozen values, typed once. Their repr shows no secret.

Relative paths are made absolute while validating: against `context={"folder": ...}`, the folder of bridge.yaml, or else
the current one. What REFERENCE names and this version does not have is listed in `later`, never accepted and ignored.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.units import GIB, MIB, parse_duration, parse_size
from bridge.settings.values import (
    bucket_folder,
    duration_or_none,
    file_path,
    parsed,
    table_path,
    tap_command,
    tap_config,
    unless,
    wrong,
)

__all__ = [
    "CommitEvery",
    "Destination",
    "Incremental",
    "Keys",
    "Pipeline",
    "Rejects",
    "Section",
    "Source",
    "Spark",
    "Spool",
]

Bytes = Annotated[int, parsed(parse_size)]
Duration = Annotated[timedelta, parsed(parse_duration)]
FilePath = Annotated[Path | None, BeforeValidator(file_path)]


class Section(BaseModel):
    """A mapping of the settings file: frozen, strict, unknown keys refused, values never echoed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    later: ClassVar[frozenset[str]] = frozenset()
    """Keys of the reference that this version refuses as not available yet."""


class Source(Section):
    """The tap and what it is given."""

    later = frozenset({"parallelism"})

    tap: Annotated[str | list[str], BeforeValidator(tap_command)] = Field(repr=False)
    pip_url: str | None = Field(default=None, repr=False)
    config: Annotated[dict[str, Any] | Path, BeforeValidator(tap_config)] = Field(default_factory=dict, repr=False)
    """The tap's settings, or the JSON file that is passed untouched."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Added to the tap's environment."""
    catalog: FilePath = None
    select: list[str] = Field(default_factory=list)
    """Globs of streams and columns, `!` deselects; the key may be written `streams`."""
    idle_timeout: Annotated[timedelta | None, parsed(duration_or_none)] = timedelta(minutes=10)
    """No output for so long: the tap is stopped; None: never."""

    @model_validator(mode="before")
    @classmethod
    def _alias(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "streams" not in data:
            return data
        if "select" in data:
            raise wrong("streams is another name of select", hint="keep one of them", at="streams")
        return {"select" if key == "streams" else key: value for key, value in data.items()}

    @property
    def argv(self) -> list[str]:
        """Return the tap's command as a list; it never sees a shell. Raises SettingsError where no tap was given."""
        argv = shlex.split(self.tap) if isinstance(self.tap, str) else list(self.tap)
        if not argv:
            raise SettingsError("no tap", hint="give --tap, or a NAME from bridge.yaml")
        return argv

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the executable only: arguments, settings and environment may hold secrets."""
        yield "tap", self.argv[0] if self.tap else ""
        yield from super().__repr_args__()


class Destination(Section):
    """Where tables go and how they are written."""

    later = frozenset({"partition_by", "file_size", "column_names", "s3"})

    bucket: Annotated[str, BeforeValidator(bucket_folder)]
    """Absolute path of the lake's folder."""
    path: Annotated[str, BeforeValidator(table_path)] = "{pipeline}"
    """Folder of the tables inside the bucket, as written; expanded: `Pipeline.table_root`."""
    format: Annotated[Literal["parquet"], unless("delta", "iceberg")] = "parquet"
    load_method: Annotated[Literal["auto", "append-only", "overwrite"], unless("upsert")] = "auto"
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd"


class Incremental(Section):
    """Whether runs resume at the bookmark; if not, every run is `--full`."""

    enabled: bool = True


class CommitEvery(Section):
    """When to commit: whichever comes first, at the next STATE; and always at the end."""

    every: Duration = timedelta(minutes=5)
    bytes: Annotated[Bytes, Field(ge=MIB)] = 256 * MIB


class Spool(Section):
    """The scratch between tap and Spark."""

    dir: FilePath = None
    max_bytes: Bytes = 4 * GIB
    """At this size the tap has to wait."""


class Spark(Section):
    """The engine: its master, and Spark's own settings as text."""

    master: str = "local[*]"
    conf: dict[str, str] = Field(default_factory=dict, repr=False)


class Rejects(Section):
    """What becomes of records that cannot be stored as their schema says."""

    on_reject: Literal["quarantine", "fail"] = "quarantine"
    max: Annotated[int, Field(ge=0)] = 1000
    """More rejects than this fail the run."""


class Keys(Section):
    """What a pipeline says in the file."""

    later = frozenset({"streams", "retry", "retention", "schedule"})

    source: Source
    destination: Destination
    incremental: Incremental = Incremental()
    commit: CommitEvery = CommitEvery()
    rejects: Rejects = Rejects()
    spool: Spool = Spool()
    spark: Spark = Spark()

    @model_validator(mode="after")
    def _room(self) -> Keys:
        """An epoch waits in the spool while the next one fills: with less room the tap would block for ever."""
        if self.spool.max_bytes > 2 * self.commit.bytes:
            return self
        hint = f"raise spool.max_bytes above {2 * self.commit.bytes // MIB}MiB, or lower commit.bytes"
        key = "spool.max_bytes" if "max_bytes" in self.spool.model_fields_set else "commit.bytes"
        raise wrong("spool.max_bytes must be more than twice commit.bytes", hint=hint, at=key)


class Pipeline(Keys):
    """One pipeline, ready to run."""

    name: str
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)
    """Texts that no log, error or record may show; see `bridge.settings.redact.redactor`."""

    @property
    def table_root(self) -> str:
        """Return the folder of the tables inside the bucket: `destination.path` with its placeholders filled."""
        path = self.destination.path.replace("{pipeline}", self.name)
        return path.replace("{tap}", Path(self.source.argv[0]).name) if "{tap}" in path else path

    @model_validator(mode="after")
    def _folders(self) -> Pipeline:
        """The tap's name is a folder too, once it is filled in."""
        if "{tap}" in self.destination.path:
            try:
                table_path(self.table_root)
            except PydanticCustomError:
                hint = "write the folder out instead of {tap}"
                raise wrong("the tap's name cannot be a folder", hint=hint, at="destination.path") from None
        return self
