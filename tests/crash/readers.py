"""Readers that look at the tables all the time, as anybody might, and the judgement on what they saw.

Each look lists a table anew and reads the `id` of every row, file by file; or takes the files that the table's
manifest names. A look that ends in an error is counted: a reader may say loudly that a file went away under it, as a
swap does; it may never see something wrong in silence.
"""

from __future__ import annotations

import io
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from typing_extensions import Never

from bridge import Lake as BridgeLake
from tests.support.view_oracle import rows_of, views_at

from .history import Files, History
from .lakes import Bucket, Folder, Lake

LOOKS_A_SECOND = 20

_GONE = re.compile(
    r"(?i)no ?such ?(file|key)|file ?not ?found|file_not_exist|no files found|infer.schema|no match for fieldref"
    r"|resource_not_found|no_such_key"
)
"""How the engines say that a file, or every file of a table, went away between listing and reading."""

Look = Callable[[str], Files]
"""Reads the table in a folder of the lake. Raises whatever the engine raises."""


@dataclass(frozen=True)
class Reader:
    """One witness. `of_manifest`: it sees what the manifest names, not what a listing shows."""

    look: Look
    a_second: float = LOOKS_A_SECOND
    of_manifest: bool = False


def duckdb_look(lake: Folder) -> Look:
    """Return a look through `read_parquet(glob)` on a connection of its own."""
    connection = duckdb.connect(config={"threads": 1})
    query = "SELECT parse_filename(filename), count(id) FROM read_parquet(?, filename = true) GROUP BY 1"

    def look(folder: str) -> Files:
        return dict(connection.execute(query, [str(lake.root / folder / "*.parquet")]).fetchall())

    return look


def pyarrow_look(lake: Folder | Bucket) -> Look:
    """Return a look through `pyarrow.dataset`, with pyarrow's own client of its store for a bucket."""
    if isinstance(lake, Folder):
        filesystem, top = None, str(lake.root)
    else:
        filesystem, top = lake.filesystem(), "/".join(filter(None, (lake.bucket, lake.prefix)))

    def look(folder: str) -> Files:
        dataset = ds.dataset(f"{top}/{folder}", format="parquet", filesystem=filesystem)
        # A listing that raced with a swap may be empty; then there is no column either, and that is an error.
        table = dataset.to_table(columns=["id", "__filename"], use_threads=False)
        counts = table["__filename"].value_counts().to_pylist()
        return {PurePosixPath(row["values"]).name: row["counts"] for row in counts}

    return look


def spark_look(lake: Folder, session: Any) -> Look:
    """Return a look through `spark.read.parquet(folder)`."""

    def look(folder: str) -> Files:
        path = str(lake.root / folder)
        rows = session.read.parquet(path).groupBy("_metadata.file_name").agg({"id": "count"}).collect()
        return {row[0]: row[1] for row in rows}

    return look


def listing_look(lake: Lake) -> Look:
    """Return a look that lists and opens each file that it has not seen: names are never used twice."""
    rows = _Footers(lake)

    def look(folder: str) -> Files:
        return {name: rows.of(f"{folder}/{name}") for name in lake.files(folder) if name.endswith(".parquet")}

    return look


def manifest_look(lake: Lake) -> Look:
    """Return a look at the files that the table's manifest names."""
    rows = _Footers(lake)

    def look(folder: str) -> Files:
        said = lake.read(f".bridge/tables/{folder}.manifest")
        if said is None:
            raise FileNotFoundError(f"no such file: the manifest of {folder}")
        uris = said.decode().splitlines()
        assert all(uri.startswith(f"{lake.uri}/{folder}/") for uri in uris), uris
        return {PurePosixPath(uri).name: rows.of(uri.removeprefix(f"{lake.uri}/")) for uri in uris}

    return look


def lake_look(lake: Folder) -> Look:
    """Return a look through `bridge.Lake`, which has to find each file of its commit wherever that is by now."""
    ours = BridgeLake(lake.uri)

    def look(folder: str) -> Files:
        (pipeline,) = ours.pipelines or _gone("the pipeline")
        stream = folder.rpartition("/")[2]
        if stream not in ours.tables(pipeline):
            _gone(f"the table of {stream}")
        if stream in ours.views(pipeline):
            _compare(ours, pipeline, stream)
        table = ours.table(pipeline, stream).to_table(columns=["id", "__filename"], use_threads=False)
        return {row["values"]: row["counts"] for row in table["__filename"].value_counts().to_pylist()}

    return look


def _compare(lake: BridgeLake, pipeline: str, name: str) -> None:
    """Hold a view against its SELECT over the tables of the same commit, whatever is committed meanwhile."""
    n = lake.commit(pipeline)
    if query := views_at(lake._storage.uri, pipeline, n).get(name):
        stored, selected = rows_of(lake._storage.uri, pipeline, n, name, query)
        assert stored == selected, f"{name} at commit {n}: {stored[:5]} != {selected[:5]}"


def _gone(thing: str) -> Never:
    raise FileNotFoundError(f"no such file: {thing} does not exist yet")


class _Footers:
    """The rows of files, each opened once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._rows: dict[str, int] = {}

    def of(self, key: str) -> int:
        if key not in self._rows:
            data = self._lake.read(key)
            if data is None:
                raise FileNotFoundError(f"no such file: {key}")
            self._rows[key] = pq.ParquetFile(io.BytesIO(data)).metadata.num_rows
        return self._rows[key]


class Watch:
    """Runs the readers in threads while the context is open; `wrong` collects what no reader may ever see.

    `looks` are counted by reader, `errors` (files that went away, said aloud) by stream and reader.

    `tables` are (stream, folder) pairs, looked at in turn.
    """

    def __init__(self, history: History, tables: Sequence[tuple[str, str]], readers: Mapping[str, Reader]) -> None:
        self._history, self._tables = history, tables
        self.looks: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name, reader), name=f"reader-{name}")
            for name, reader in readers.items()
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, reader: Reader) -> None:
        for stream, folder in itertools.cycle(self._tables):
            began = time.monotonic()
            try:
                self.look_once(name, reader, stream, folder)
            except Exception as error:  # the log itself could not be read: a dead witness must not pass for a quiet one
                self.wrong.append(f"{name} cannot look any more: {type(error).__name__}: {error}")
                return
            if self._over.wait(max(0.0, began + 1 / reader.a_second - time.monotonic())):
                return

    def look_once(self, name: str, reader: Reader, stream: str, folder: str) -> None:
        """Look, judge, and count."""
        before = self._history.head()
        try:
            seen = reader.look(folder)
        except Exception as error:  # every engine has its own, and all of them are loud
            text = f"{type(error).__name__}: {error}"
            if gone := _GONE.search(text):
                self.errors[stream, f"{name}: {gone.group()}"] += 1
            else:
                self.wrong.append(f"{name} failed on {stream}: {text[:2000]}")
            return
        self.looks[name] += 1
        after = self._history.head()
        if complaint := self._history.complaint(stream, seen, before, after, of_manifest=reader.of_manifest):
            self.wrong.append(f"{name} saw in {stream}: {complaint}")


def witnesses(lake: Folder | Bucket, session: Any = None, *, a_second: float = LOOKS_A_SECOND) -> dict[str, Reader]:
    """Return every reader that can look into this lake; Spark does if there is a session of its own.

    The heavy ones look less often: the runs need the machine, too.
    """
    manifest = Reader(manifest_look(lake), a_second, of_manifest=True)
    if isinstance(lake, Bucket):
        # pyarrow asks for each file anew, and the server has the runs to serve
        return {
            "listing": Reader(listing_look(lake), a_second / 2),
            "pyarrow": Reader(pyarrow_look(lake), a_second / 8),
            "manifest": replace(manifest, a_second=a_second / 2),
        }
    readers = {"duckdb": Reader(duckdb_look(lake), a_second), "pyarrow": Reader(pyarrow_look(lake), a_second)}
    if session is not None:
        readers["spark"] = Reader(spark_look(lake, session), a_second / 4)
    return readers | {"manifest": manifest, "lake": Reader(lake_look(lake), a_second / 2, of_manifest=True)}
