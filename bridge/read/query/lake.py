"""`bridge.Lake`: the tables of a bucket, for Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from bridge.errors import SettingsError
from bridge.lake.log import Log, bookmarks
from bridge.lake.presence import pipelines_in
from bridge.lake.reconciled import Proof
from bridge.lake.runs import RunRecord
from bridge.lake.storage import open_storage
from bridge.read.query.engine import answer
from bridge.read.query.follow import LatestCommit
from bridge.read.query.pipelines import log_of
from bridge.read.query.snapshot import TablesAt
from bridge.read.query.system import runs
from bridge.read.query.view import View
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options


class Lake:
    """The pipelines of one bucket, to be read.

    Each call reads the commit log again and sees the last commit whose files are all visible; what it returns stays at
    that commit, whatever runs do meanwhile. `at` is a commit's number, for all calls: an older one can be read for as
    long as its record and its files are kept (`retention`). Numbers belong to one pipeline, so in a bucket with several
    `at` is a mapping from pipeline to number. Nothing is written, and no lease is taken.

    Raises `SettingsError` for a pipeline, a stream or a commit that does not exist, `LakeError` if the bucket cannot be
    read, `CorruptLake` if the log is damaged.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        at: int | Mapping[str, int] | None = None,
        *,
        s3: S3Options | None = None,
        azure: AzureOptions | None = None,
        gcs: GcsOptions | None = None,
    ) -> None:
        """Nothing is read until a method is called."""
        self._storage = open_storage(os.fspath(uri), s3 or azure or gcs)
        self._at = at

    def __repr__(self) -> str:
        return f"Lake({self._storage.uri!r})" if self._at is None else f"Lake({self._storage.uri!r}, at={self._at!r})"

    @property
    def pipelines(self) -> list[str]:
        """The names of the pipelines that were run into this bucket, sorted."""
        return pipelines_in(self._storage)

    def tables(self, pipeline: str) -> list[str]:
        """The streams of a pipeline that have a table, and its views, sorted."""
        return sorted(self._tables(pipeline).snapshot.tables)

    def table(self, pipeline: str, stream: str) -> ds.Dataset:
        """A table as an Arrow dataset: `to_table`, `to_batches`, `filter`, `count_rows`. Polars and DuckDB take it."""
        return self._tables(pipeline).dataset(stream)

    def views(self, pipeline: str) -> list[str]:
        """The names of a pipeline's views, sorted; each is one of its tables, too."""
        return sorted(name for name, table in self._tables(pipeline).snapshot.tables.items() if table.view)

    def view(self, pipeline: str, name: str) -> View:
        """A view, to be read by key: `lake.view("shop", "by_customer").get(customer_id=42)`.

        It keeps the footers of the view's files in memory, so open it once. Each `get` reads the last commit, or the
        one that this `Lake` is `at`.
        """
        return View(LatestCommit(self._log(pipeline)), name, self._number(pipeline))

    def commit(self, pipeline: str) -> int:
        """The number of the commit that is read; 0 before the first."""
        return self._tables(pipeline).snapshot.n

    def sql(self, query: str) -> pa.Table:
        """The answer to one statement in DuckDB's SQL (extra `sql`).

        A table is called `pipeline.stream`, in a bucket with one pipeline also `stream`; `bridge.runs`,
        `bridge.commits`, `bridge.bookmarks`, `bridge.streams`, `bridge.files`, `bridge.rejects` and
        `bridge.reconciliations` are the system tables. All tables of a pipeline are of the same commit.
        """
        with answer(query, [self._tables(name) for name in self.pipelines]) as reader:
            return reader.read_all()

    def bookmarks(self, pipeline: str) -> dict[str, Any]:
        """The bookmarks of a pipeline's STATE by stream, as the tap said them."""
        return bookmarks(self._tables(pipeline).snapshot.state)

    def reconciled(self, pipeline: str) -> dict[str, Proof]:
        """The last comparison of each table with its source, by stream, as `reconcile` found it; of all commits."""
        return Proof.last(self._storage, self._log(pipeline).pipeline)

    def runs(self, pipeline: str, limit: int | None = None) -> Iterator[RunRecord]:
        """The records of the latest runs, newest first, each read when it is needed."""
        return runs(self._log(pipeline), limit)

    def _tables(self, pipeline: str) -> TablesAt:
        return TablesAt.of(self._log(pipeline), self._number(pipeline))

    def _number(self, pipeline: str) -> int | None:
        if not isinstance(self._at, int):
            return None if self._at is None else self._at.get(pipeline)
        if len(names := self.pipelines) > 1:
            hint = f"commit numbers belong to one pipeline: at={{{pipeline!r}: {self._at}}}"
            raise SettingsError("which pipeline's commit?", hint=hint, pipelines=", ".join(names))
        return self._at

    def _log(self, pipeline: str) -> Log:
        return log_of(self._storage, pipeline)
