"""A pipeline's log, as it travels to executors and is opened there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from bridge.errors import BridgeError
from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.settings.values.stores import StoreOptions


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """A bucket, how it is reached, and a pipeline in it. No repr shows a key."""

    bucket: str
    pipeline: str
    store: StoreOptions | None = field(default=None, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """boto3's keys, where the options have them."""

    def log(self) -> Log:
        """Open it. Nothing is read yet."""
        return Log(open_storage(self.bucket, self.store), self.pipeline)


@contextmanager
def explained(environment: Mapping[str, str]) -> Iterator[None]:
    """Work with these variables, and let a `BridgeError` have its hint in its text: that is all that Spark shows.

    A Python worker of Spark serves one task at a time, and then maybe one of another user of the lake.
    """
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    except BridgeError as error:
        if error.hint and error.hint not in str(error):
            error.args = (f"{error.message}\n  {error.hint}",)
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
