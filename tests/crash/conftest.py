"""Lakes for crashes: a folder, and two buckets of a server that can be copied. Each is used by one test at a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from .places import InBucket, InFolder, Place
from .s3copies import Server, server


@pytest.fixture(scope="session")
def place_of() -> Iterator[Callable[[str], Place]]:
    """Return a place by its name: "local", "s3", or "s3-uploads", where each pending file is an upload under way.

    In memory where there is such a folder: thousands of fsyncs would measure the disk, and prove nothing here.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:

        def folder() -> Path:
            name = tempfile.TemporaryDirectory(prefix="crash-", dir=memory, ignore_cleanup_errors=True)
            return Path(stack.enter_context(name))

        @cache
        def root() -> Server:
            return stack.enter_context(server(folder()))

        @cache
        def make(name: str) -> Place:
            if name == "local":
                return InFolder(folder())
            bucket = InBucket(folder(), root(), uploads=name == "s3-uploads")
            stack.callback(bucket.lake.close)
            return bucket

        yield make
