"""How often a small file is swapped again that somebody else changes at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import LakeError

_MOST = 20


def attempts(key: str) -> Iterator[None]:
    """Yield once for each attempt to swap `key`; the caller leaves the loop when one succeeds. Raises `LakeError`."""
    for _ in range(_MOST):
        yield
    raise LakeError(
        "gave up: another process keeps changing a file of the lake",
        hint="stop the other writers, then run again",
        file=key,
    )
