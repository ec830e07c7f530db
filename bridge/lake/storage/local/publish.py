"""Makes pending files visible and takes old ones away: by renames, links, and the exchange of a whole table.

Each step may be repeated: after a crash between any two, the next writer publishes the same change again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bridge.lake.storage.local.folders import (
    exchange,
    explained,
    fsync_folder,
    locked,
    make_folder,
    make_folders,
    remove_empty,
    require_inside,
)
from bridge.lake.storage.parallel import on_disk
from bridge.lake.storage.protocol import Add, Change, Missing, Rewrite


def publish(root: Path, changes: Sequence[Change]) -> None:
    """As the protocol says."""
    require_inside(root, (key for change in changes for key in change.touches()))
    tables = [_Table(root, change) for change in changes]
    if missing := [key for table in tables for key in table.missing()]:
        raise Missing(missing)
    with explained("publish", root):
        make_folders(table.folder for table in tables)
    on_disk(_Table.publish, tables)


def settle_rewrites(root: Path, changes: Sequence[Change]) -> list[Rewrite]:
    """As the protocol says."""
    require_inside(root, (key for change in changes for key in change.touches()))
    visible: list[Rewrite] = []
    for table in (_Table(root, change) for change in changes if change.rewrites):
        with explained("take back", table.folder), locked(table.folder.parent):
            for one in table.change.rewrites:
                (root / one.add.source).unlink(missing_ok=True)
            visible += [one for one in table.change.rewrites if table.is_rewritten(one)]
    return visible


class _Table:
    """One change of one table's folder."""

    def __init__(self, root: Path, change: Change) -> None:
        self.root, self.change = root, change
        self.folder, self.trash = root / change.folder, root / change.trash

    def _name(self, key: str) -> str:
        return key.removeprefix(f"{self.change.folder}/")

    def missing(self) -> Iterator[str]:
        """The keys of files that are neither pending nor visible."""
        for add in self.change.adds:
            places = (self._source(add), self.root / add.key, _aside(self.trash) / self._name(add.key))
            if not any(place.exists() for place in places):
                yield add.key
        for one in self.change.rewrites:
            if not (self.root / one.add.source).exists() and not self.is_rewritten(one):
                yield one.add.key

    def is_rewritten(self, one: Rewrite) -> bool:
        """Whether the visible file differs from the one in the trash: until the rename they are the same."""
        try:
            return not os.path.samefile(self.root / one.trash, self.root / one.add.key)
        except FileNotFoundError:
            return False

    def _trashed_table(self, add: Add) -> Path | None:
        """The trash of the table that a file was in, if it comes from there."""
        if "/trash/" not in add.source:
            return None
        return (self.root / add.source).parents[self._name(add.key).count("/")]

    def _source(self, add: Add) -> Path:
        """Where a file to publish is: at its source, or for one in the trash where an unfinished exchange left it."""
        source, name, trashed = self.root / add.source, self._name(add.key), self._trashed_table(add)
        places = (source, trashed / name, _aside(trashed) / name) if trashed else (source,)
        return next((place for place in places if place.exists()), source)

    def publish(self) -> None:
        """Make the adds visible and the removes invisible."""
        change = self.change
        with explained("publish", self.folder):
            for add in change.aborts:
                (self.root / add.source).unlink(missing_ok=True)
            if change.replace and change.removes and change.adds:
                self.replace()
            else:
                self.append()

    def append(self) -> None:
        change, folder = self.change, self.folder
        make_folder(folder)
        unfinished = {_aside(trashed) for add in change.adds if (trashed := self._trashed_table(add))}
        for add in change.adds:
            _move(self._source(add), self.root / add.key)
        if change.rewrites:
            with locked(folder.parent):
                self._rewrite()
        for remove in change.removes:
            for place in (folder, *unfinished):
                _move(place / self._name(remove.key), self.root / remove.trash)
        # Of an exchange that was taken back; both sides are where they belong now.
        for place in filter(Path.exists, unfinished):
            _remove_tree(place)
        keys = [*(add.key for add in change.adds), *(one.add.key for one in change.rewrites)]
        removed = [remove.key for remove in change.removes]
        _fsync({folder, *((self.root / key).parent for key in (*keys, *removed))})
        for parent in {(self.root / key).parent for key in removed}:
            remove_empty(parent, folder)

    def _rewrite(self) -> None:
        """Rename pending files over visible ones, which are linked into the trash before. The folder is locked."""
        waiting = [one for one in self.change.rewrites if (self.root / one.add.source).exists()]
        for one in waiting:
            key, trash = self.root / one.add.key, self.root / one.trash
            make_folder(trash.parent)
            if trash.exists():
                continue
            if key.exists():
                os.link(key, trash)
            else:  # somebody deleted it; the new bytes have all its rows, and `is_rewritten` needs another file here
                trash.touch()
        _fsync((self.root / one.trash).parent for one in waiting)
        for one in waiting:
            os.rename(self.root / one.add.source, self.root / one.add.key)

    def replace(self) -> None:
        """Build the new folder aside, exchange, put the old one into the trash; goes on where a crash stopped it."""
        make_folder(self.folder)
        with locked(self.folder.parent):
            self._bring_in()
        # The old names lose Parquet's suffix only now, when no listing reaches their folder any more.
        for remove in self.change.removes:
            _move(self.trash / self._name(remove.key), self.root / remove.trash)
        _fsync({self.trash.parent, *((self.root / remove.trash).parent for remove in self.change.removes)})

    def _bring_in(self) -> None:
        adds, folder, trash, aside = self.change.adds, self.folder, self.trash, _aside(self.trash)
        # An exchange is its own inverse: only the names tell whether it has been done.
        if not all((self.root / add.key).exists() for add in adds):
            if missing := list(self.missing()):  # while we slept, somebody took over and went on to other files
                raise Missing(missing)
            make_folder(aside)
            for add in adds:
                _move(self.root / add.source, aside / self._name(add.key))
            _fsync({aside, *((aside / self._name(add.key)).parent for add in adds)})
            if not exchange(aside, folder):
                if not trash.exists():
                    os.rename(folder, trash)
                os.rename(aside, folder)
            fsync_folder(folder.parent)
        if aside.exists():
            os.rename(aside, trash)


def _aside(trash: Path) -> Path:
    return trash.with_name(trash.name + ".new")


def _move(source: Path, target: Path) -> None:
    """Rename; a source that does not exist was renamed before a crash."""
    if source.exists():
        make_folder(target.parent)
        os.rename(source, target)


def _fsync(folders: Iterable[Path]) -> None:
    """Make entries durable; a folder that does not exist was emptied and removed when this was done before."""
    for folder in set(folders):
        if folder.exists():
            fsync_folder(folder)


def _remove_tree(folder: Path) -> None:
    for place, _, _ in os.walk(folder, topdown=False):
        os.rmdir(place)
