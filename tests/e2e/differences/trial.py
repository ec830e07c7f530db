"""One pipeline over one database: after each run, how each table differs from it, and whether a run said so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.realtaps import Project
from tests.support.shell import Done

from .oracle import Finding, Table, compare, read_lake
from .verdict import Heard

_MERGED = {"load_method": "upsert"}
"""As `discover` proposes it."""
_TRIES = 8
"""Runs in which an error may name tables, which are left out from then on, before one has to succeed."""


def _tell(line: str) -> None:
    """Print a table's state, for a person: pytest shows it where the test fails."""
    print(line, flush=True)


def _word(name: str) -> str:
    return rf"(?<![\w]){re.escape(name)}(?!\w)"


@dataclass
class Trial:
    """A new project, set up as a newcomer does; `read` is the database's side of the comparison."""

    project: Project
    schema: str
    read: Callable[[], dict[str, Table]]
    renamed: dict[str, str] = field(default_factory=dict)
    """By a table's new name the old one, under which its stream is known."""
    heard: Heard = field(default_factory=Heard)
    earlier: dict[str, list[Table]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Tables that an error named: left out since."""
    unnamed: list[str] = field(default_factory=list)
    """Errors that name no table."""
    failed: bool = False
    """The last run ended with an error that names no table: so nobody takes any table for complete."""
    silent: list[Finding] = field(default_factory=list)

    def add(self, config: dict[str, Any], method: str, keyed: Collection[str]) -> None:
        """`add`, its file filled in, and `discover`. Tables without a key are copied whole, whatever the method."""
        file = self.project.folder / "bridge.yaml"
        file.write_text("pipelines:\n")
        self._listen(self.project.command("add", "p", "--tap", str(self.project.tap)))
        settings = yaml.safe_load(file.read_text())
        pipeline = settings["pipelines"]["p"]
        pipeline["source"] |= {"config": config, "select": [f"{self.schema}-*"]}
        file.write_text(yaml.safe_dump(settings))
        self._listen(self.project.command("discover", "p"))
        streams: dict[str, Any] = {"*": {"replication_method": "FULL_TABLE"}}
        if method != "FULL_TABLE":
            by = {"replication_key": "updated_at"} if method == "INCREMENTAL" else {}
            streams |= {self.stream(table): {"replication_method": method, **by, **_MERGED} for table in keyed}
        pipeline["streams"] = streams
        file.write_text(yaml.safe_dump(settings, allow_unicode=True))

    def stream(self, table: str) -> str:
        return f"{self.schema}-{self.renamed.get(table, table)}"

    def run(self) -> None:
        """Run until it succeeds: a table that an error names is left out, as its reader knows now."""
        self.failed = False
        for _ in range(_TRIES):
            done = self.project.command("run", "p", "--json")
            self._listen(done)
            if done.code == 0:
                break
            named = self._named(done.err)
            if not named:
                self.failed = True
                self.unnamed.append(done.err[:1500])
                _tell(f"exit {done.code}, and no table is named: {done.err[:1500]}")
                break
            _tell(f"exit {done.code}, left out {sorted(named)}: {done.err[:700]}")
            self._leave_out(named)
        for reject in self.project.rejects():
            self.heard.rejects[reject["stream"]] = self.heard.rejects.get(reject["stream"], 0) + 1

    def _named(self, error: str) -> set[str]:
        """The tables in an error's first line, else the last one that it names: it shows what the tap did last."""
        names = {*self.read(), *self.earlier, *self.renamed.values()} - self.refused
        places = {table: [one.start() for one in re.finditer(_word(table), error)] for table in names}
        named = {table for table, found in places.items() if found}
        first = {table for table in named if places[table][0] < error.find("\n")}
        return first or set(sorted(named, key=lambda table: places[table][-1])[-1:])

    def _leave_out(self, tables: Collection[str]) -> None:
        self.refused |= {*tables, *(new for new, old in self.renamed.items() if old in tables)}
        file = self.project.folder / "bridge.yaml"
        settings = yaml.safe_load(file.read_text())
        settings["pipelines"]["p"]["source"]["select"] += [f"!{self.stream(table)}" for table in tables]
        file.write_text(yaml.safe_dump(settings, allow_unicode=True))

    def _listen(self, done: Done) -> None:
        """Take in what a command said: its record, if it is a run, and every line of its own."""
        self.heard.sentences += [line for line in done.err.splitlines() if not line.startswith(("time=", "name="))]
        if not done.out.startswith("{"):
            self.heard.sentences += done.out.splitlines()
            return
        record = json.loads(done.out)
        self.heard.sentences += record.get("warnings", [])
        self.heard.sentences += [f"{one['stream']}: {one['text']}" for one in record.get("differences", ())]
        for stream, result in record.get("streams", {}).items():
            held = result.get("held_back")
            self.heard.sentences += [f"{stream}: {held['message']} {held.get('hint', '')}"] if held else []

    def look(self, when: str) -> None:
        """Compare all tables; each difference is one that was said, or a silent one."""
        listed = self.project.command("tables", "list", "p", "--json")
        folders = {one["stream"]: one["folder"] for one in json.loads(listed.out)} if listed.out else {}
        tables = self.read()
        for name, table in tables.items():
            if name not in self.refused:
                self._judge(when, self.stream(name), self._differences(table, folders.get(self.stream(name))))
            self.earlier.setdefault(name, []).append(table)
        for stream in folders.keys() - {self.stream(name) for name in tables}:
            name = stream.removeprefix(f"{self.schema}-")
            if name not in self.refused:
                finding = Finding(name, "rows too many", "", ["the source has no such table"], 1)
                self._judge(when, stream, [finding])

    def _differences(self, table: Table, folder: str | None) -> list[Finding]:
        if folder is None:
            return [Finding(table.name, "table missing", count=len(table.rows))] if table.rows else []
        columns, rows = read_lake(Path(self.project.folder, "lake"), folder, table.kinds)
        return compare(table, columns, rows, self.earlier.get(table.name, []))

    def _judge(self, when: str, stream: str, findings: list[Finding]) -> None:
        for finding in findings:
            says = self.heard.says(finding, stream) or (self.failed and finding.sort != "value")
            self.silent += [] if says else [finding]
            _tell(f"{when}: {'said  ' if says else 'SILENT'} {finding}")
        if not findings:
            _tell(f"{when}: equal  {stream}")
