"""The records of earlier runs, as a run looks at them: several checks ask for the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from bridge.lake.storage import Storage


class _Remembered:
    """See `remembered`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read, self._listed = dict[str, bytes | None](), dict[str, list[str]]()

    def read(self, key: str) -> bytes | None:
        if key not in self._read:
            self._read[key] = self._storage.read(key)
        return self._read[key]

    def list(self, prefix: str) -> Iterator[str]:
        if prefix not in self._listed:
            self._listed[prefix] = [*self._storage.list(prefix)]
        return iter(self._listed[prefix])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def remembered(storage: Storage) -> Storage:
    """The storage, each record of which is read once: for a run that holds the pipeline, so all others have ended."""
    return cast(Storage, _Remembered(storage))
