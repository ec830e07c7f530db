"""How often a small file is swapped again that somebody else changes at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import LakeError

_MOST = 20


def attempts(key: str) -> Iterator[None]:
    """Yield once for each attempt to swap `key`; the caller leaves the loop when one succeeds. Raises `LakeError`."""
    for _ in range(_MOST):
        yield
    raise LakeError("a file of the lake is changed by somebody all the time", hint="find out by whom", file=key)
