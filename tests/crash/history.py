"""What the commit log says, read without any of our own code: which files a reader may see, and with how many rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .lakes import Folder, Lake

Files = Mapping[str, int]
"""A table at one moment: names of its files and the rows in each."""


@dataclass(frozen=True)
class _Step:
    """What one commit did to one table.

    `replaced`: the whole of it. `exchanged`: at once, no listing shows anything between the two.
    """

    before: Files
    after: Files
    replaced: bool
    exchanged: bool

    def shows(self, names: set[str]) -> bool:
        """Return whether a listing made while this commit was published may be `names`."""
        old, new = set(self.before), set(self.after)
        if self.exchanged:
            return names in (old, new)
        if self.replaced:  # what is new appears before anything old goes
            return names <= old | new and (names >= old or names >= new)
        return old & new <= names <= old | new


class History:
    """The log of one pipeline, which others are writing to. May be used by several threads."""

    def __init__(self, lake: Lake | Path, pipeline: str) -> None:
        self._lake = Folder(lake) if isinstance(lake, Path) else lake
        self._folder = f".bridge/{pipeline}/commits"
        self._records: list[dict[str, Any]] = []
        self._live: list[dict[str, Files]] = [{}]
        self._lock = threading.Lock()

    def head(self) -> int:
        """Take in what is new and return the number of the last record, 0 for none."""
        with self._lock:
            while (record := self._read(len(self._records) + 1)) is not None:
                self._records.append(record)
                self._live.append(_applied(self._live[-1], record))
            return len(self._records)

    def _read(self, n: int) -> dict[str, Any] | None:
        data = self._lake.read(f"{self._folder}/{n:020d}.json")
        return None if data is None else dict(json.loads(data))

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records up to the last `head()`, oldest first."""
        return list(self._records)

    @property
    def state(self) -> Any:
        """The committed STATE, None before the first."""
        return self._records[-1]["state"] if self._records else None

    @property
    def streams(self) -> list[str]:
        """The streams that have a table."""
        return sorted(self._live[-1])

    @property
    def staged(self) -> dict[str, Any]:
        """The files of half loaded tables that the last commit names, by stream."""
        return dict(self._records[-1].get("staged", {})) if self._records else {}

    def live(self, stream: str, n: int = -1) -> Files:
        """Return a stream's table after commit `n`, the last one by default."""
        return self._live[n].get(stream, {})

    def complaint(self, stream: str, seen: Files, before: int, after: int, *, of_manifest: bool = False) -> str | None:
        """Return what is wrong with a look, None if nothing is.

        `before` and `after` are the heads before the look began and after it ended. A commit is published before its
        successor is created, so only the last data commit of `before` may still be on its way. A look at what a
        manifest names is the table after one of these commits, exactly.
        """
        settled = self._settled(before)
        steps = [self._step(stream, n, of_manifest) for n in range(settled + 1, after + 1)]
        names = set(seen)
        if names != set(self.live(stream, settled)) and not any(step.shows(names) for step in steps):
            return self._wrong(stream, names, settled, after)
        # What is being taken back may never have been visible whole: a file of it has its old bytes still.
        voids = [self._records[n - 1].get("voids", n + 1) - 1 for n in range(settled + 1, after + 1)]
        known = [item for n in {*range(settled, after + 1), *voids} for item in self.live(stream, n).items()]
        torn = {name: rows for name, rows in seen.items() if (name, rows) not in known}
        return f"files in part: {torn}" if torn else None

    def _settled(self, n: int) -> int:
        while n and self._records[n - 1]["kind"] not in ("data", "void", "replay", "rollback"):
            n -= 1
        return max(0, n - 1)

    def _step(self, stream: str, n: int, of_manifest: bool) -> _Step:
        entries = [entry for entry in self._records[n - 1].get("tables", []) if entry["stream"] == stream]
        replaced = any(entry["mode"] == "replace" and entry["removes"] for entry in entries)
        exchanged = of_manifest or (replaced and self._lake.exchanges)
        return _Step(self.live(stream, n - 1), self.live(stream, n), replaced, exchanged)

    def _wrong(self, stream: str, names: set[str], settled: int, after: int) -> str:
        named = {name for n in range(after + 1) for name in self.live(stream, n)}
        if names - named:
            return f"uncommitted files: {sorted(names - named)}"
        first, last = set(self.live(stream, settled)), set(self.live(stream, after))
        lost, old = sorted(first & last - names), sorted(names - first - last)
        return f"neither an old table nor a new one: missing={lost} gone before={old} commits={settled}..{after}"


def _applied(live: dict[str, Files], record: dict[str, Any]) -> dict[str, Files]:
    after = dict(live)
    for entry in record.get("tables", []):
        files = {name: rows for name, rows in after.get(entry["stream"], {}).items() if name not in entry["removes"]}
        after[entry["stream"]] = files | {add["name"]: add["rows"] for add in entry["adds"]}
    return after
