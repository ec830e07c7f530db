"""Three readers that look at the table folders all the time, as anybody might, and the judgement on what they saw.

Each look lists a folder anew and reads the `id` of every row, file by file. A look that ends in an error is counted:
a reader may say loudly that a file went away under it, as a swap does; it may never see something wrong in silence.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow.dataset as ds

from .history import Files, History

LOOKS_A_SECOND = 20

_GONE = re.compile(
    r"(?i)no ?such ?file|file ?not ?found|file_not_exist|no files found|infer.schema|no match for fieldref"
)
"""How the engines say that a file, or every file of a table, went away between listing and reading."""

Look = Callable[[Path], Files]
"""Reads a table's folder. Raises whatever the engine raises."""


def duckdb_look() -> Look:
    """Return a look through `read_parquet(glob)` on a connection of its own."""
    connection = duckdb.connect(config={"threads": 1})
    query = "SELECT parse_filename(filename), count(id) FROM read_parquet(?, filename = true) GROUP BY 1"

    def look(folder: Path) -> Files:
        return dict(connection.execute(query, [str(folder / "*.parquet")]).fetchall())

    return look


def pyarrow_look() -> Look:
    """Return a look through `pyarrow.dataset`."""

    def look(folder: Path) -> Files:
        dataset = ds.dataset(folder, format="parquet")
        # A listing that raced with a swap may be empty; then there is no column either, and that is an error.
        table = dataset.to_table(columns=["id", "__filename"], use_threads=False)
        counts = table["__filename"].value_counts().to_pylist()
        return {Path(row["values"]).name: row["counts"] for row in counts}

    return look


def spark_look(session: Any) -> Look:
    """Return a look through `spark.read.parquet(folder)`."""

    def look(folder: Path) -> Files:
        rows = session.read.parquet(str(folder)).groupBy("_metadata.file_name").agg({"id": "count"}).collect()
        return {row[0]: row[1] for row in rows}

    return look


class Watch:
    """Runs the readers in threads while the context is open; `wrong` collects what no reader may ever see.

    `looks` are counted by reader, `errors` (files that went away, said aloud) by stream and reader.

    `tables` are (stream, folder) pairs, looked at in turn.
    """

    def __init__(self, history: History, tables: Sequence[tuple[str, Path]], readers: dict[str, Look]) -> None:
        self._history, self._tables = history, tables
        self.looks: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name, look), name=f"reader-{name}")
            for name, look in readers.items()
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, look: Look) -> None:
        for stream, folder in itertools.cycle(self._tables):
            began = time.monotonic()
            self.look_once(name, look, stream, folder)
            if self._over.wait(max(0.0, began + 1 / LOOKS_A_SECOND - time.monotonic())):
                return

    def look_once(self, name: str, look: Look, stream: str, folder: Path) -> None:
        """Look, judge, and count."""
        before = self._history.head()
        try:
            seen = look(folder)
        except Exception as error:  # every engine has its own, and all of them are loud
            text = f"{type(error).__name__}: {error}"
            if gone := _GONE.search(text):
                self.errors[stream, f"{name}: {gone.group()}"] += 1
            else:
                self.wrong.append(f"{name} failed on {stream}: {text[:2000]}")
            return
        self.looks[name] += 1
        after = self._history.head()
        if complaint := self._history.complaint(stream, seen, before, after):
            self.wrong.append(f"{name} saw in {stream}: {complaint}")
