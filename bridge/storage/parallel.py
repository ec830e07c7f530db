"""Many calls of a backend at once, where each waits for a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Parallel(Protocol):
    @property
    def parallel(self) -> int: ...


def parallel_map(storage: _Parallel, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The result for each item, in their order. The first error is raised once all calls have ended."""
    threads = min(storage.parallel, len(items))
    if threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="bucket") as pool:
        return list(pool.map(work, items))
