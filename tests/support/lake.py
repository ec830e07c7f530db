"""A bucket under the commit protocol, looked at from outside, and one behind a bad network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.errors import LakeError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.paths import pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableChange
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import table_change

DEAD: dict[str, Any] = {"format": 1, "head": None, "closed": None}
"""What the lease of a run that was killed says."""

FIRST: dict[str, Any] = {}
"""What the lease says before any run."""


def closed(head: int) -> dict[str, Any]:
    """What the lease of a run that ended cleanly says."""
    return {"format": 1, "head": head, "closed": head}


class Lake:
    """A bucket, looked at from outside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self._files = 0

    def open(self, last: dict[str, Any], storage: LocalStorage | None = None) -> Committer:
        return open_committer(storage or self.storage, "p", "run", last=last)

    def pending(self, generation: int, pipeline: str = "p") -> dict[str, Any]:
        """Write a pending file of a run's generation and return it as a report names it."""
        self._files += 1
        name = f"part-{generation:010d}-000001-{self._files:032x}.parquet"
        source = pipeline_key(pipeline, "pending", f"{name}.pending")
        with closing(self.storage.open_pending(source, f"p/s/{name}")) as file:
            file.write(b"rows" * self._files)
        return {"name": name, "source": source, "size": 4 * self._files, "rows": 1}

    def entry(self, *files: dict[str, Any], removes: tuple[str, ...] = (), stream: str = "s") -> TableChange:
        return table_change(files, removes, stream, mode="replace" if removes else "append")

    def load(self, committer: Committer, state: Any, **facts: Any) -> dict[str, Any]:
        """Commit one new file of the table `s` and return it."""
        file = self.pending(committer.generation)
        committer.commit(PipelineState(state), [self.entry(file)], **facts)
        return file

    def visible(self, stream: str = "s") -> set[str]:
        folder = self.root / "p" / stream
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    @property
    def waiting(self) -> set[str]:
        return {path.name.removesuffix(".pending") for path in (self.root / ".bridge/p/pending").glob("*")}

    @property
    def kinds(self) -> list[str]:
        log = Log(self.storage, "p")
        return [record.kind for record in reversed(list(log.history(log.head())))]

    @property
    def state(self) -> Any:
        path = self.root / ".bridge/p/state.json"
        return orjson.loads(path.read_bytes()) if path.exists() else None

    def edit_state(self, text: str) -> None:
        self.storage.write(".bridge/p/state.json", text.encode())

    def state_files(self) -> dict[str, bytes]:
        """`state.json` and its witness, as a run that dies now would leave them."""
        return {name: self.storage.read(f".bridge/p/{name}") or b"" for name in ("state.json", "published.json")}

    def leave(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            self.storage.write(f".bridge/p/{name}", data)

    def manifest(self, stream: str = "s") -> set[str]:
        return {
            Path(line).name for line in (self.root / f".bridge/tables/p/{stream}.manifest").read_text().splitlines()
        }

    def everything(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


class Faulty(LocalStorage):
    """A bucket behind a bad network: what happens around each call is given."""

    def __init__(
        self,
        lake: Lake,
        *,
        put: Callable[[Callable[[], bool]], bool] | None = None,
        read: Callable[[], None] = lambda: None,
        publish: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        super().__init__(lake.root)
        self._put, self._read, self._publish = put, read, publish
        self.armed = False

    def put_if_absent(self, key: str, data: bytes) -> bool:
        def whole() -> bool:
            return super(Faulty, self).put_if_absent(key, data)

        return self._put(whole) if self._put and self.armed else whole()

    def read(self, key: str) -> bytes | None:
        if self.armed:
            self._read()
        return super().read(key)

    def publish(self, changes: Any) -> None:
        def whole() -> None:
            super(Faulty, self).publish(changes)

        if self._publish and self.armed:
            self._publish(whole)
        else:
            whole()


def overtaken(storage: Any, others: Callable[[], None], at: tuple[str, ...] = ("_delta_log", "/metadata/snap-")) -> Any:
    """Return a copy of a storage, through which others act right before a table's own log is written first.

    `at` are texts in the keys of that log.
    """
    slow, waiting = copy(storage), [others]

    def wrapped(whole: Callable[[str, bytes], Any]) -> Callable[[str, bytes], Any]:
        def act(key: str, data: bytes) -> Any:
            if waiting and any(text in key for text in at):
                waiting.pop()()
            return whole(key, data)

        return act

    for name in ("put_if_absent", "write"):
        setattr(slow, name, wrapped(getattr(slow, name)))
    return slow


def unreachable() -> LakeError:
    return LakeError("cannot reach the bucket", hint="look at the network")


def fail(*_: Any) -> Any:
    raise unreachable()


def unpublished(lake: Lake, state: Any, entries: list[TableChange], last: dict[str, Any], **facts: Any) -> None:
    """Make a commit and die before it is published."""
    storage = Faulty(lake, publish=fail)
    committer = lake.open(last, storage)
    storage.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        committer.commit(PipelineState(state), entries, **facts)


@contextmanager
def holding(lake: Lake, run: str, *, brief: bool = False) -> Iterator[None]:
    """Hold the pipeline as another process does: a lock belongs to its descriptor, not to its process."""
    lease = take(lake.storage, "p", run, brief=brief)
    try:
        yield
    finally:
        lease.close(head=Log(lake.storage, "p").head(), clean=True)
