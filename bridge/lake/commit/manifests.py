"""A table's manifests: lists of its files, for engines that read by them. They follow from the log."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.lake.commit.head import Head
from bridge.lake.ownership import Owner, owners_of, tables_of
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.attempts import attempts


def manifest_keys(folder: str) -> list[str]:
    """The keys of a table's manifests: Hive and its kin take a folder of manifests, not a file."""
    return [f".bridge/tables/{folder}.{name}" for name in ("manifest", "symlinks/manifest")]


def listed_files(storage: Storage, owner: Owner, table: TableState, *, shared: bool) -> list[str]:
    """The names that a manifest lists: the table's files; of a `shared` table, those of all its owners."""
    names = set(table.files)
    if shared:  # whoever writes the manifest last has to have seen the logs of all
        others = [other for other in owners_of(storage, table.folder)[0] if other != owner]
        names = names.union(*(other.files for other in tables_of(storage, others).values()))
    return sorted(names)


def manifest_body(storage: Storage, folder: str, names: list[str]) -> bytes:
    """One URI a line."""
    return "".join(f"{storage.uri}/{folder}/{name}\n" for name in names).encode()


def write_manifests(head: Head, streams: Mapping[str, bool]) -> None:
    """Make the tables' manifests list exactly the tables' files. Raises `CommitLost` if another run took over.

    `streams` tells of each whether other pipelines add files to its table, too.
    """
    due = {key: stream for stream in streams for key in manifest_keys(head.snapshot.tables[stream].folder)}
    for _ in attempts(next(iter(due), "")):
        bodies = {
            stream: _body(head, stream, head.snapshot.tables[stream], shared=streams[stream])
            for stream in dict.fromkeys(due.values())
        }
        changed = head.swap_all({key: bodies[stream] for key, stream in due.items()})
        if not changed:
            return
        head.look_all(changed)
        due = {key: due[key] for key in changed}


def undo_manifests(head: Head, record: CommitRecord) -> None:
    """Restore manifests that we wrote after another run took over, if the tables are what they were before `record`.

    The other run had restored the bytes that we had read, so our swap succeeded too late. The restored manifests list
    only files that exist, so this is right whether or not the other run has made its own swap yet.
    """
    before, now = head.log.snapshot(record.n - 1).tables, head.log.snapshot(head.log.head()).tables
    for change in record.tables:
        old, new = before.get(change.stream), now.get(change.stream)
        if old and new and old.files.keys() == new.files.keys():
            for key in manifest_keys(new.folder):
                head.put_back(key, _body(head, change.stream, new, shared=change.shared))


def _body(head: Head, stream: str, table: TableState, *, shared: bool) -> bytes:
    names = listed_files(head.storage, Owner(head.log.pipeline, stream), table, shared=shared)
    return manifest_body(head.storage, table.folder, names)
