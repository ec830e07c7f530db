"""The source of every system: numbered records, a STATE every so many, and a bookmark that it resumes from."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.venvs import own_program

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

    def grow(self) -> None:
        """Give the source `added` records more. The first call makes the command."""
        self.records += self.added
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
