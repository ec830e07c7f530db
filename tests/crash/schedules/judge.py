"""What must hold in a bucket at every change, and once a run has ended well. It reads with pyarrow and json, not with
our code."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .bucket import Bucket
from .source import COLUMNS, Rows, Source, mark

PIPELINE, URI = "p", "s3://lake"
_META = f".bridge/{PIPELINE}/"
_STATE, _COMMITS, _PENDING, _TRASH = (f"{_META}{name}" for name in ("state.json", "commits/", "pending/", "trash/"))

Table = dict[str, bytes | None]
"""The bytes of each file by its name; None: nobody can say any more."""


def _parquet(data: bytes) -> dict[str, list[Any]]:
    return dict(pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False).to_pydict())


class Broken(AssertionError):
    """A promise that does not hold."""


class Judge:
    """Looks at each change. Its log is what the bucket's commits say; `seen` the commits whose STATE somebody saw."""

    def __init__(self, bucket: Bucket, source: Source) -> None:
        self._bucket, self._source = bucket, source
        self.records: list[dict[str, Any]] = []
        self._tables: list[dict[str, Table]] = [{}]
        self._named: set[str] = set()
        self._seen: set[int] = set()
        self._read: dict[bytes, dict[str, list[Any]]] = {}
        self.broken = ""
        bucket.watch = self.watch

    def watch(self, key: str) -> None:
        """Look at a change, just made. The first broken promise stays in `broken`."""
        try:
            self._watch(key)
        except Broken as broken:
            self.broken = self.broken or str(broken)

    def _watch(self, key: str) -> None:
        there = self._bucket.objects.get(key)
        if key.startswith(_COMMITS) and there:
            self._committed(key, json.loads(there.data))
        elif key == _STATE and there:
            self._shown(json.loads(there.data))
        elif key.startswith(f"{PIPELINE}/"):
            stream, _, name = key.removeprefix(f"{PIPELINE}/").partition("/")
            if there is None and name in self._tables[-1].get(stream, {}):
                raise Broken(f"a file is gone that the log names: {key}")
            if there and key not in self._named:
                raise Broken(f"a file is visible that no commit names: {key}")

    # commits

    def _committed(self, key: str, record: dict[str, Any]) -> None:
        n = record["n"]
        if n != len(self.records) + 1 or not key.endswith(f"/{n:020d}.json"):
            raise Broken(f"commit {n} does not follow commit {len(self.records)}")
        self.records.append(record)
        if (voided := record.get("voids")) is not None:
            if voided in self._seen:
                raise Broken(f"commit {voided} was taken back, and its STATE had been seen")
            if not self._bucket.purged:
                raise Broken(f"commit {voided} was taken back though nothing was purged")
        lost = self._bucket.purged and record.get("reason") == "staged files are gone"
        if record["kind"] == "state" and not lost:
            raise Broken(f"what a run wrote was taken for an edit by hand: {record.get('reason')}")
        adds = [add for entry in record.get("tables", []) for add in entry["adds"]]
        self._bucket.named = {add["upload"] for add in adds if add.get("upload")}
        tables = {stream: dict(files) for stream, files in self._tables[-1].items()}
        for entry in record.get("tables", []):
            table = tables.setdefault(entry["stream"], {})
            for name in entry["removes"]:
                table.pop(name, None)
            for add in entry["adds"]:
                self._named.add(f"{PIPELINE}/{entry['stream']}/{add['name']}")
                table[add["name"]] = self._bytes_of(entry["stream"], add)
        if voided is not None:
            self._put_back(tables, self._tables[voided - 1], {add["name"] for add in adds})
        self._tables.append(tables)
        if record["kind"] != "fence":
            self._covers(record, tables)

    def _put_back(self, tables: dict[str, Table], before: dict[str, Table], added: set[str]) -> None:
        """Files that the lost commit would have rewritten, and did not, have their old bytes."""
        for stream, table in tables.items():
            old = before.get(stream, {})
            table.update({name: old[name] for name in table.keys() & old.keys() - added})

    def _bytes_of(self, stream: str, add: dict[str, Any]) -> bytes | None:
        """The bytes that a commit adds: those of its upload, of its pending file, or of what a void brings back."""
        if name := add.get("upload"):
            if name in self._bucket.uploads:
                return self._bucket.uploads[name].data
        else:
            for key in (add["source"], f"{PIPELINE}/{stream}/{add['name']}"):
                if key in self._bucket.objects:
                    return self._bucket.objects[key].data
        if not self._bucket.purged:
            raise Broken(f"a commit names a file that is not there: {add['source']}")
        return None

    def _covers(self, record: dict[str, Any], tables: dict[str, Table]) -> None:
        """The rows of the tables are those that the STATE covers, each once, but for those that it says it does not."""
        state, what = record["state"], f"commit {record['n']}"
        for stream in self._source.streams:
            if stream in record.get("uncovered", ()):
                continue
            rows = self._rows(stream, tables.get(stream, {}))
            if rows is None:
                continue
            if stream in "tv":
                if rows and not self._source.is_whole(stream, rows):
                    raise Broken(f"{what}: {stream} is no whole table: {rows}")
            elif rows != (expected := self._source.rows(stream, state)):
                raise Broken(f"{what}: {stream} holds {rows}, and its STATE covers {expected}")

    def _rows(self, stream: str, table: Table) -> Rows | None:
        found: Rows = []
        for data in table.values():
            if data is None:
                return None
            if data not in self._read:
                self._read[data] = _parquet(data)
            columns = self._read[data]
            found += zip(*(columns[name] for name in COLUMNS[stream]), strict=True)
        return sorted(found)

    # STATEs that somebody can see

    def _shown(self, state: Any) -> None:
        known = [record["n"] for record in self.records if record["state"] == state and record["kind"] != "fence"]
        if not known:
            raise Broken(f"state.json has a STATE that no commit has: {state}")
        self._seen.add(known[-1])
        if known[-1] == self._last_change():
            self._is_visible("state.json was written")

    def _last_change(self) -> int:
        return next((record["n"] for record in reversed(self.records) if record["kind"] != "fence"), 0)

    def _is_visible(self, when: str) -> None:
        for stream, table in self._tables[-1].items():
            for name, data in table.items():
                there = self._bucket.objects.get(f"{PIPELINE}/{stream}/{name}")
                if there is None or (data is not None and there.data != data):
                    raise Broken(f"{when}, and {stream}/{name} of it is not visible")

    # the end

    def settled(self, run: int | None) -> None:
        """What must hold once a run has ended well, and nobody commits. `run` sent all there is, None: any did.

        Raises `Broken`.
        """
        if self.broken:
            raise Broken(self.broken)
        self._is_visible("a run has ended well")
        objects = self._bucket.objects
        shown = {key.removeprefix(f"{PIPELINE}/") for key in objects if key.startswith(f"{PIPELINE}/")}
        named = {f"{stream}/{name}" for stream, table in self._tables[-1].items() for name in table}
        if shown - named:
            raise Broken(f"files are visible that the log does not name: {sorted(shown - named)}")
        for stream, table in self._tables[-1].items():
            lines = objects[f".bridge/tables/{PIPELINE}/{stream}.manifest"].data.decode().split()
            if lines != sorted(f"{URI}/{PIPELINE}/{stream}/{name}" for name in table):
                raise Broken(f"the manifest of {stream} is not what the log says")
        state = self.records[-1]["state"]
        if json.loads(objects[_STATE].data) != state:
            raise Broken("state.json is not what the log says")
        if run is not None:
            self._is_all(state, run)

    def _is_all(self, state: Any, run: int) -> None:
        source = self._source
        for stream in source.streams:
            if stream == "t":
                whole = self._rows("t", self._tables[-1]["t"]) == source.whole(run)
            elif stream == "v":
                whole = len(self._rows("v", self._tables[-1]["v"]) or ()) == source.last(run)
            else:
                whole = mark(state, stream) == source.last(run)
            if not whole:
                raise Broken(f"a run has sent all rows of {stream}, and the STATE is {state}")

    def nothing_is_pending(self) -> None:
        """What must hold as well, unless requests are on their way still. Raises `Broken`."""
        left = [key for key in self._bucket.objects if key.startswith(_PENDING)] + [*self._bucket.uploads]
        if left:
            raise Broken(f"pending files of dead runs are left: {left}")
