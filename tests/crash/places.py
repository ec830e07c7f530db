"""Where a history happens: a folder or a bucket, always at the same address, put back before each crash."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bridge.load.run import dispatcher

from .cases import noisy
from .driver import Run
from .faults import Fault, Watcher
from .lakes import Bucket, Folder, Lake
from .process import Child, Ending
from .s3copies import ENVIRON, Server

_NOTHING = Fault()


@cache
def _warm() -> None:
    """Load here, once, what each child would load: modules, and what libraries make at their first use."""
    with tempfile.TemporaryDirectory() as folder:
        Run(noisy).execute(f"{folder}/lake", Path(folder, "spool"))


class Place:
    """One lake. `lake` is how others see it; `freeze` keeps it as it is now, and `thawed` puts that back."""

    name: str
    uri: str
    lake: Lake
    scratch: Path
    spark: Any = None
    """The session of this process in which a run's views are changed."""

    def freeze(self) -> Any:
        raise NotImplementedError

    def thawed(self, frozen: Any = None) -> Any:
        """Return a context in which the lake is a copy of what was frozen; empty without."""
        raise NotImplementedError

    def put_back(self, frozen: Any) -> None:
        """Have the lake that is thawed be a copy of this one instead."""
        raise NotImplementedError

    def forget(self, frozen: Any) -> None:
        """Delete what was frozen."""
        raise NotImplementedError

    def lose(self, key: str, upload: bool = False) -> None:
        """Delete a file, or end the upload to there."""
        raise NotImplementedError

    def put(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def prepare(self) -> None:
        """Make a child ready for this place, in the child."""
        dispatcher._RETRY = timedelta(0)  # a tap that ends within milliseconds would otherwise have one barrier
        tempfile.tempdir = str(self.scratch.parent)  # whoever is killed leaves files
        if self.spark:  # the connection to the JVM is the parent's
            self.spark.sparkContext._gateway._gateway_client.thread_connection = threading.local()

    def say_stacks(self) -> None:
        """Have whoever keeps the lake print where its threads stand, on stderr."""

    def child(self, work: Callable[[Watcher], None], fault: Fault = _NOTHING) -> Child:
        """Start a process that works on the lake."""
        _warm()
        return Child(work, self.uri, self.scratch, fault, prepare=self.prepare, hangs=self.say_stacks)

    def run(self, run: Run, fault: Fault = _NOTHING) -> Ending:
        """Run to the end, whatever ends it."""

        def work(watcher: Watcher) -> None:
            run.mark, run.spark = watcher.mark, self.spark
            run.execute(self.uri, self.scratch)

        return self.child(work, fault).wait()


class InFolder(Place):
    """A lake in a folder."""

    def __init__(self, folder: Path) -> None:
        self.name, self._root = "local", folder / "lake"
        self.uri, self.scratch = str(self._root), folder / "spool"
        self.lake = Folder(self._root)
        self._frozen = (folder / f"frozen-{number}" for number in count())

    def freeze(self) -> Path:
        return shutil.copytree(self._root, next(self._frozen))

    @contextmanager
    def thawed(self, frozen: Path | None = None) -> Iterator[None]:
        if frozen:
            shutil.copytree(frozen, self._root)
        else:
            self._root.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(self._root)

    def put_back(self, frozen: Path) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(frozen, self._root)

    def forget(self, frozen: Path) -> None:
        shutil.rmtree(frozen)

    def lose(self, key: str, upload: bool = False) -> None:
        (self._root / key).unlink()

    def put(self, key: str, data: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class InBucket(Place):
    """A lake in a bucket. `uploads`: every pending file is an upload under way, as large ones are."""

    def __init__(self, folder: Path, root: Server, *, uploads: bool) -> None:
        self.name, self._uploads = "s3", uploads
        self.uri, self.scratch, self.endpoint = "s3://lake/team", folder / "spool", root.endpoint
        # moto says 500 where a store says that an upload is gone: no need to ask eight times.
        self.environ = ENVIRON | {"AWS_ENDPOINT_URL": root.endpoint, "AWS_MAX_ATTEMPTS": "2"}
        self.lake: Bucket = Bucket(self.uri, self.environ)
        with patch.dict(os.environ, self.environ):
            from bridge.lake.storage.s3.clients import clients
            from bridge.settings.values.stores import S3Options

            self._clients = clients(S3Options())
        self._empty = root.copy()
        self._empty.wake()
        self.lake.client.create_bucket(Bucket="lake")
        self._empty.sleep()
        self._now: Server | None = None

    def prepare(self) -> None:
        super().prepare()
        from bridge.lake.storage.s3 import clients, pending

        os.environ |= self.environ
        # To make clients anew takes ten times as long as a run. These were never used, so no connection is shared.
        clients._clients = lambda *_: self._clients  # type: ignore[assignment]
        if self._uploads:
            pending._SMALL = -1

    def say_stacks(self) -> None:
        if self._now:
            self._now.say_stacks()

    def freeze(self) -> Server:
        assert self._now
        return self._now.copy()

    @contextmanager
    def thawed(self, frozen: Server | None = None) -> Iterator[None]:
        self._wake(frozen or self._empty)
        try:
            yield
        finally:
            self._end()

    def put_back(self, frozen: Server) -> None:
        self._end()
        self._wake(frozen)

    def forget(self, frozen: Server) -> None:
        frozen.close()

    def _wake(self, frozen: Server) -> None:
        self._now = frozen.copy()
        self._now.wake()

    def _end(self) -> None:
        assert self._now
        self._now.sleep()
        self._now.close()

    def lose(self, key: str, upload: bool = False) -> None:
        if not upload:
            self.lake.client.delete_object(Bucket="lake", Key=f"team/{key}")
            return
        for item in self.lake.client.list_multipart_uploads(Bucket="lake")["Uploads"]:
            if item["Key"] == f"team/{key}":
                self.lake.client.abort_multipart_upload(Bucket="lake", Key=item["Key"], UploadId=item["UploadId"])

    def put(self, key: str, data: bytes) -> None:
        self.lake.client.put_object(Bucket="lake", Key=f"team/{key}", Body=data)
