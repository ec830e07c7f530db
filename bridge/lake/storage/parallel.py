"""Many calls of a backend at once, where each waits for a network or for a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

MANY = 64
"""From so many durable writes on, threads are worth their start on a disk."""
DISK_THREADS = 16
"""A disk makes what several threads wait for durable at once: its journal is written for all of them."""

T = TypeVar("T")
R = TypeVar("R")


class _Parallel(Protocol):
    @property
    def parallel(self) -> int: ...


def parallel_map(storage: _Parallel, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The result for each item, in their order. The first error is raised once all calls have ended."""
    return _map(storage.parallel, work, items)


def on_disk(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The same for a local disk, where threads only help with many items."""
    if len(items) < MANY:
        return [work(item) for item in items]
    # A share each: handing over single items would cost more than the work on a small file.
    shares = [items[first::DISK_THREADS] for first in range(DISK_THREADS)]
    results = _map(DISK_THREADS, lambda share: [work(item) for item in share], shares)
    return [results[at % DISK_THREADS][at // DISK_THREADS] for at in range(len(items))]


def _map(threads: int, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    threads = min(threads, len(items))
    if threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="bucket") as pool:
        return list(pool.map(work, items))
