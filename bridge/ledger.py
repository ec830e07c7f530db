"""What Spark has written and no commit has named yet, and the one check that lets a commit happen.

Conservation: every segment of a manifest is reported exactly once, and its lines are its rows plus its rejects.
Whatever went wrong on the way (a file read twice or not at all, a task that ran twice, a torn segment) breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from bridge.columns import keep_schema
from bridge.commit import Committer
from bridge.epoch import Barrier, Publication
from bridge.errors import DataError, EngineError
from bridge.log import LiveTable
from bridge.schema import TableSchema, with_extra
from bridge.spool import Manifest
from bridge.tables.parquet import Job, raise_failure, write_empty

__all__ = ["Ledger"]

_OF_A_FILE = ("name", "source", "size", "rows", "upload")


class Ledger:
    """Pending files by stream. All of it is used from one thread at a time, the one that handles Spark's batches."""

    def __init__(
        self,
        committer: Committer,
        job: Job,
        *,
        shared: Collection[str] = (),
        adopted: dict[str, int],
        max_rejects: int,
        seen: Callable[[dict[str, Any]], None],
    ) -> None:
        self._committer = committer
        self._job = job
        self._shared = shared
        self._max_rejects = max_rejects
        self._seen = seen
        self._files: dict[str, list[dict[str, Any]]] = {}
        self._versions: dict[str, set[int | None]] = {}
        self._rejects: list[dict[str, Any]] = []
        self._extra: set[str] = set()
        self.rejected = 0
        self.warnings: list[str] = []
        self.extra: dict[str, dict[str, int]] = {}
        for stream, version in adopted.items():
            self._files[stream] = list(committer.view.staged[stream]["files"])
            self._versions[stream] = {version}

    def add(self, manifest: Manifest, reports: list[dict[str, Any]]) -> None:
        """Take in the reports of one manifest. Raises `EngineError` unless they add up."""
        for report in reports:
            raise_failure(report)
        reported = [(c["file"], c["start"], c["rows"] + c["rejects"]) for report in reports for c in report["counts"]]
        wanted = [(s.file, s.start, s.lines) for bundle in manifest.bundles for s in bundle]
        rows = sum(file["rows"] for report in reports for file in report["files"])
        counted = sum(count["rows"] for report in reports for count in report["counts"])
        if sorted(reported) != sorted(wanted) or rows != counted:
            hint = "nothing was committed; run again, and report it with the run's log if it comes back"
            raise EngineError("Spark's work does not add up", hint=hint, manifest=manifest.seq, lines=manifest.lines)
        for report in reports:
            self._take(report)

    def _take(self, report: dict[str, Any]) -> None:
        for file in report["files"]:
            self._files.setdefault(file["stream"], []).append(file)
            if file["extra"]:
                self._extra.add(file["stream"])
        for stream, versions in report["versions"].items():
            self._versions.setdefault(stream, set()).update(versions)
        for stream, fields in report["extra"].items():
            known = self.extra.setdefault(stream, {})
            for name, count in fields.items():
                known[name] = known.get(name, 0) + count
        for rejects in report["rejects"]:
            self.reject(rejects)

    def reject(self, rejects: dict[str, Any]) -> None:
        """Count a reject file that the next commit names. Raises `DataError` above the limit."""
        self._rejects.append(rejects)
        self.rejected += rejects["lines"]
        if self.rejected > self._max_rejects:
            hint = f"read them: they are in {rejects['file']}; mend the tap or its schema, or raise `rejects.max`"
            raise DataError("too many rejects", hint=hint, rejected=self.rejected, max=self._max_rejects)

    def discard_staged(self, streams: Iterable[str]) -> None:
        """Forget the staged files of these, an earlier run's and this one's: the tap started the tables again."""
        for stream in streams:
            self._files.pop(stream, None)
            self._versions.pop(stream, None)

    def commit(self, barrier: Barrier, through: int) -> None:
        """Publish what the barrier publishes and keep the rest pending; no commit where nothing is new."""
        tables = []
        for stream, mode in barrier.publish.items():
            entry = self._entry(stream, mode, barrier, through)
            if entry:
                tables.append(entry)
        staged = {stream: self._stage(stream, version, barrier) for stream, version in barrier.staged.items()}
        view = self._committer.view
        if not tables and not self._rejects and (barrier.state, staged) == (view.state, view.staged):
            return  # nothing new
        record = self._committer.commit(
            barrier.state, tables, merged=barrier.merged, through=through, staged=staged, rejects=self._rejects
        )
        for stream in barrier.publish:
            self._files.pop(stream, None)
            self._versions.pop(stream, None)
        self._rejects = []
        self._seen(record)

    def _entry(self, stream: str, mode: Publication, barrier: Barrier, through: int) -> dict[str, Any] | None:
        files = self._files.get(stream, [])
        table = self._table(stream)
        if not files and (not barrier.end or (mode != "replace" and table.files)):
            return None
        version = table.version
        if mode != "append":
            versions = self._versions.get(stream, set())
            version = self._one_version(stream, versions | {version} if mode == "extend" else versions - {None})
        schema = self._kept_schema(stream, barrier.schemas[stream])
        if not files:
            files = [write_empty(self._job, through, stream, schema)]
        adds = [{key: file[key] for key in _OF_A_FILE if key in file} for file in files]
        removes = list(table.files) if mode == "replace" else []
        rows = sum(file["rows"] for file in files)
        if removes and rows * 2 < table.rows:
            self.warnings.append(f"{stream}: the table was overwritten with {rows:,} rows, it had {table.rows:,}")
        return {
            "stream": stream,
            "folder": table.folder,
            "schema": schema.hash,
            "version": version,
            "mode": "replace" if mode == "replace" else "append",
            "adds": adds,
            "removes": removes,
        } | ({"shared": True} if stream in self._shared else {})

    def _kept_schema(self, stream: str, schema: TableSchema) -> TableSchema:
        """Return the columns that the stream's files have, after keeping them in the bucket under their hash."""
        if stream in self._extra:
            schema = with_extra(schema)
        keep_schema(self._committer.storage, self._job.pipeline, schema)
        return schema

    def _table(self, stream: str) -> LiveTable:
        return self._committer.view.tables.get(stream) or LiveTable(self._job.targets[stream].folder, None)

    def _stage(self, stream: str, version: int, barrier: Barrier) -> dict[str, Any]:
        if stream not in barrier.schemas:  # the tap has not come to it in this run
            stage: dict[str, Any] = self._committer.view.staged[stream]
            return stage
        self._one_version(stream, self._versions.get(stream, set()) | {version})
        schema = self._kept_schema(stream, barrier.schemas[stream])
        folder = self._table(stream).folder
        return {"version": version, "schema": schema.hash, "folder": folder, "files": self._files.get(stream, [])}

    @staticmethod
    def _one_version(stream: str, versions: Collection[int | None]) -> int | None:
        if len(versions) > 1:
            hint = "the tap began the table anew within one run; run again, or with --full to start over"
            raise DataError("a full table's rows are of several versions", hint=hint, stream=stream, versions=versions)
        return next(iter(versions), None)
