"""The settings of one pipeline as frozen values, typed once. Their repr shows no secret.

Relative paths are made absolute while validating: against `context={"folders": {key: folder}}`, the folder of the file
that has the key, or else the current one. The docstring under a key is its description in `bridge.schema.json`.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterable, Iterator
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.destination import Destination, StreamKeys
from bridge.settings.values.checked import (
    duration_or_none,
    parsed,
    process_count,
    stream_glob,
    table_path,
    tap_command,
    tap_config,
    wrong,
)
from bridge.settings.values.cron import check_cron
from bridge.settings.values.guarding import Guard
from bridge.settings.values.section import Bytes, Duration, FilePath, Name, Section
from bridge.settings.values.units import DURATION, GIB, MIB


class ReplicationSlot(Section):
    """PostgreSQL's replication slot, which LOG_BASED streams are read from."""

    guard: Annotated[
        Literal["auto", "off"],
        BeforeValidator(lambda said: "off" if said is False else said),  # YAML reads a bare `off` as false
        WithJsonSchema({"enum": ["auto", "off", False]}),
    ] = "auto"
    """auto: the tap reads a copy of the slot, and the slot moves only behind a commit; off: the tap moves it."""
    url: str | None = Field(default=None, repr=False)
    """How to connect to the database, else as the tap's own settings say."""
    setting: Name = None
    """The tap's setting that names the slot, for a tap that is not known."""


class Source(Section):
    """The tap and what it is given."""

    tap: Annotated[str | list[str], BeforeValidator(tap_command)] = Field(repr=False)
    """The tap's command, on PATH or a path, with its arguments; no shell sees it."""
    pip_url: str | None = Field(default=None, repr=False)
    """What `install` gives to pip."""
    config: Annotated[
        dict[str, Any] | Path, BeforeValidator(tap_config), WithJsonSchema({"type": ["object", "string", "null"]})
    ] = Field(default_factory=dict, repr=False)
    """The tap's settings, or the JSON file that is passed untouched."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Added to the tap's environment."""
    catalog: FilePath = None
    """The catalog to pass to the tap."""
    select: list[str] = Field(default_factory=list)
    """Streams and columns by globs; `!` deselects, the last match wins. The key may be written `streams`."""
    idle_timeout: Annotated[
        timedelta | None,
        parsed(duration_or_none),
        WithJsonSchema({"type": ["string", "null"], "pattern": DURATION}),
    ] = timedelta(minutes=10)
    """No output for so long: the tap is stopped; null: never."""
    discover: Literal["auto", "never"] = "auto"
    """Before each run, ask a tap that discovers quickly whether types of columns have changed; `never`: do not."""
    parallelism: Annotated[
        int | Literal["auto"],
        BeforeValidator(process_count),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
    ] = 1
    """So many processes of the tap at once, each for some of the streams; auto: as many as the machine has cores."""
    replication_slot: ReplicationSlot = ReplicationSlot()

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


class Incremental(Section):
    """Whether runs resume at the bookmark; if not, every run is `--full`."""

    enabled: bool = True
    """False: every run is `--full`."""


class CommitEvery(Section):
    """When to commit: whichever comes first, at the next STATE; and always at the end."""

    every: Duration = timedelta(minutes=5)
    """Commit at the next STATE after so long."""
    bytes: Annotated[Bytes, Field(ge=MIB)] = 256 * MIB
    """Commit after so much from the tap; at least 1MiB."""
    rows: Annotated[int, Field(ge=1)] | None = None
    """Commit after so many records; by itself their number does not count."""


class Spool(Section):
    """The scratch between tap and Spark."""

    dir: FilePath = None
    """Where it is, else in `.singer-bridge`."""
    max_bytes: Bytes = 2 * GIB  # twice that was a sixth slower: what waits for long is written to the disk
    """At this size the tap has to wait; more than twice `commit.bytes`. Rows of an upsert count until their commit."""


class Spark(Section):
    """The engine: its master, and Spark's own settings as text."""

    master: str = "local[*]"
    """Where Spark runs."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark's own settings; values are text."""


def is_local(master: str) -> bool:
    """Whether Spark's executors live on this machine, with its Python and its folders."""
    return master.startswith("local")


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # pydantic has a method `validate`, which nobody is to use any more

    class Rejects(Section):
        """What becomes of records that cannot be stored as their schema says."""

        on_reject: Literal["quarantine", "fail"] = "quarantine"
        """Keep them and go on, or fail at the first."""
        max: Annotated[int, Field(ge=0)] = 1000
        """More rejects than this fail the run."""
        validate: Literal["types", "full"] = "types"  # type: ignore[assignment]
        """What a record is held against: its columns' types, or its whole SCHEMA by jsonschema, with formats."""


class Retry(Section):
    """What happens after a run that failed: it is resumed from its last commit, but never for a wrong setting."""

    attempts: Annotated[int, Field(ge=1)] = 1
    """Runs altogether; 1: none is repeated."""
    backoff: Duration = timedelta(seconds=30)
    """Wait before the second attempt; it doubles before each later one."""


class Retention(Section):
    """How long what is no longer needed is kept."""

    commits: Duration = timedelta(days=90)
    """Commits of the log that no table needs any more."""
    runs: Duration = timedelta(days=90)
    """Run records."""
    logs: Duration = timedelta(days=30)
    """What tap and Spark wrote."""
    rejects: Duration = timedelta(days=90)
    """Records that could not be stored."""
    trash: Duration = timedelta(days=7)
    """Files that were removed from a table."""


class Schedule(Section):
    """When the pipeline runs by itself, once `schedule install` was called."""

    cron: Annotated[str, parsed(check_cron)]
    """Five fields as cron reads them, or `@daily` and the like."""


class Keys(Section):
    """What a pipeline says in the file."""

    source: Source
    destination: Destination
    incremental: Incremental = Incremental()
    commit: CommitEvery = CommitEvery()
    rejects: Rejects = Rejects()
    guard: Guard | None = Guard()
    spool: Spool = Spool()
    spark: Spark = Spark()
    retry: Retry = Retry()
    retention: Retention = Retention()
    schedule: Schedule | None = None
    streams: dict[Annotated[str, BeforeValidator(stream_glob)], StreamKeys] = Field(default_factory=dict)
    """Overrides by glob of stream names; see `Pipeline.stream`."""

    @model_validator(mode="after")
    def _room(self) -> Keys:
        """An epoch waits in the spool while the next one fills: with less room the tap would block for ever."""
        if self.spool.max_bytes > 2 * self.commit.bytes:
            return self
        hint = f"raise spool.max_bytes above {2 * self.commit.bytes // MIB}MiB, or lower commit.bytes"
        key = "spool.max_bytes" if "max_bytes" in self.spool.model_fields_set else "commit.bytes"
        raise wrong("spool.max_bytes must be more than twice commit.bytes", hint=hint, at=key)

    @model_validator(mode="after")
    def _shared(self) -> Keys:
        """A folder of the project is seen by this machine only."""
        if self.spool.dir or is_local(self.spark.master):
            return self
        hint = "set it to a folder that the driver and all executors share under the same path: see docs/cluster.md"
        raise wrong("spark.master is a cluster, which needs spool.dir", hint=hint, at="spool.dir")


class Pipeline(Keys):
    """One pipeline, ready to run."""

    name: str
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)
    """Texts that no log, error or record may show; see `bridge.settings.redact.redactor`."""

    names: dict[str, tuple[str, ...]] = Field(default_factory=dict, repr=False)
    """All names of a stream by each of them, as far as a catalog says; see `bridge.singer.catalog.stream_names`."""
    inherited: frozenset[str] = frozenset()
    """Globs under `streams` that only the file's `defaults` have: they may be meant for other pipelines."""

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return all names of a stream: its id in the catalog, and what its RECORDs are called."""
        return self.names.get(name, (name,))

    def all_names(self, names: Iterable[str]) -> frozenset[str]:
        """Return all names of several streams."""
        return frozenset(other for name in names for other in (name, *self.names_of(name)))

    def _matches(self, name: str, glob: str) -> bool:
        return any(fnmatchcase(one, glob) for one in self.names_of(name))

    def stream(self, name: str) -> StreamKeys:
        """Return what `streams` says of one stream: every glob that matches, key by key the last one wins.

        A glob matches the stream's id in the catalog as well as the name of its RECORDs, whichever `name` is.
        """
        said: dict[str, Any] = {}
        for glob, keys in self.streams.items():
            if self._matches(name, glob):
                said |= {key: getattr(keys, key) for key in keys.model_fields_set}
        return StreamKeys(**said)

    def load_method(self, name: str) -> str:
        """Return how one stream is to be loaded: as `streams` says, else as `destination` does."""
        return self.stream(name).load_method or self.destination.load_method

    def guard_of(self, name: str) -> Guard:
        """Return when one stream's overwrite is refused: as `streams` says key by key, else as `guard` does."""
        streams = (
            keys.guard
            for glob, keys in self.streams.items()
            if fnmatchcase(name, glob) and "guard" in keys.model_fields_set
        )
        said: dict[str, float | None] = {}
        for guard in (self.guard, *streams):
            if guard is None:
                said = {"rejected": None, "shrink": None}
            else:
                said |= {key: getattr(guard, key) for key in guard.model_fields_set}
        return Guard(**said)

    def metadata(self, name: str) -> bool:
        """Return whether one stream's rows get the SDK's metadata columns."""
        said = self.stream(name).add_record_metadata
        return self.destination.add_record_metadata if said is None else said

    def appends_only(self, names: Iterable[str] = ()) -> bool:
        """Return whether a stream is set to append-only: one of `names`; without names any that there may be."""
        if names := list(names):
            return any(self.load_method(name) == "append-only" for name in names)
        said = (keys.load_method for keys in self.streams.values())
        return "append-only" in (self.destination.load_method, *said)

    def glob_of(self, name: str, key: str) -> str | None:
        """Return the glob under `streams` whose `key` holds for a stream, None if none says anything."""
        said = (g for g, keys in self.streams.items() if self._matches(name, g) and key in keys.model_fields_set)
        return max(said, key=list(self.streams).index, default=None)

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
