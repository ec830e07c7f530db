"""The source of every system: numbered records, a STATE every so many, and a bookmark that it resumes from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typing_extensions import Self

from tests.benchmarks.venvs import NotInstalled, own_program
from tests.e2e.postgresql import PostgreSql, postgresql

STREAM = "numbers"
ADDED = 20_000
"""Records that are new in each run of the pipeline."""
STATE_EVERY = 500
PAUSE_MS = 150
"""After each STATE: the tap of one run takes some seconds, so that a signal meets a pipeline that is loading."""
_COLUMNS = ("id", "n", "name")
"""Columns of types that all systems can store: a date-time, for one, ends a run of DataSpoc Pipe."""


@dataclass
class Source:
    """A tap in a folder: `tap-numbers`, a command with no settings but those in `tap.json`."""

    folder: Path
    added: int = ADDED
    every: int = STATE_EVERY
    pause_ms: int = PAUSE_MS
    records: int = 0

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """A source whose files are in a folder, for the block."""
        yield cls(folder)

    def grow(self, added: int = 0) -> None:
        """Give the source `added` records more, or as many as always. The first call makes the command."""
        self.records += added or self.added
        self.config_file.write_text(json.dumps(self.config), encoding="utf-8")
        if not self.command.exists():
            self._make_command()

    @property
    def command(self) -> Path:
        """What every system starts as its tap, perhaps with `--state FILE`."""
        return self.folder / "tap-numbers"

    @property
    def config_file(self) -> Path:
        return self.folder / "tap.json"

    @property
    def config(self) -> dict[str, object]:
        """The tap's settings; the catalog leaves out the columns that not all can store."""
        streams = [{"name": STREAM, "records": self.records}]
        return {"streams": streams, "state": {"every": self.every}, "batch_delay_ms": self.pause_ms}

    def _make_command(self) -> None:
        """Wrap tap-smoke: DataSpoc Pipe passes no catalog to a tap, so the catalog is part of the command."""
        catalog = self.folder / "catalog.json"
        columns = [
            {"breadcrumb": ["properties", name], "metadata": {"inclusion": "available", "selected": name in _COLUMNS}}
            for name in ("n", "name", "amount", "active", "at")
        ]
        stream = {"tap_stream_id": STREAM, "stream": STREAM, "replication_method": "INCREMENTAL"}
        whole = {"breadcrumb": [], "metadata": {"selected": True, "replication-method": "INCREMENTAL"}}
        entry = stream | {"replication_key": "id", "key_properties": ["id"], "metadata": [whole, *columns]}
        catalog.write_text(json.dumps({"streams": [entry]}), encoding="utf-8")
        program = shlex.join([str(own_program("tap-smoke")), "--catalog", str(catalog)])
        self.command.write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
        self.command.chmod(0o755)

    def restart(self) -> None:
        """Not this one: it is no server."""
        raise NotImplementedError


@dataclass
class PostgresSource(Source):
    """The same records in the table `public.numbers` of a PostgreSQL of its own, for tools that read no Singer.

    A run's records are committed before the run starts, so each cursor on `id` meets them in order.
    """

    server: PostgreSql = field(kw_only=True)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """With a server that lives as long as the block. Raises `NotInstalled` where there is none."""
        with ExitStack() as stack:
            try:
                server = stack.enter_context(postgresql())
            except pytest.skip.Exception as reason:
                raise NotInstalled(str(reason)) from None
            server.sql(f"create table {STREAM} (id bigint primary key, n bigint, name text)")
            yield cls(folder, server=server)

    def grow(self, added: int = 0) -> None:
        """Insert them in one transaction."""
        first = self.records + 1
        self.records += added or self.added
        numbers = f"generate_series({first}, {self.records}) i"
        self.server.sql(f"insert into {STREAM} select i, i * 7, 'name ' || i from {numbers}")

    @property
    def login(self) -> dict[str, str]:
        """Host, port, user, password and database, by libpq's variables."""
        return self.server.environ

    def url(self, scheme: str = "postgresql", options: str = "") -> str:
        """The same as a URL."""
        at = {name.removeprefix("PG").lower(): value for name, value in self.login.items()}
        return f"{scheme}://{at['user']}:{at['password']}@{at['host']}:{at['port']}/{at['database']}{options}"

    def restart(self) -> None:
        """The server stops at once, as in a crash, and starts again; connections break."""
        self.server.restart()
