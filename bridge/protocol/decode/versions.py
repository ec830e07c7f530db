"""Rows by the `version` of their messages: a file of a table holds rows of one version, so that all of it can go."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc

from bridge.protocol.decode.decoder import Decoded


def is_mixed(decoded: Decoded) -> bool:
    """Whether rows are of several versions, or some of one and some of none."""
    low, high = decoded.versions or (None, None)
    return low is not None and (low != high or decoded.unversioned > 0)


def by_version(decoded: Decoded) -> Iterator[tuple[int | None, Decoded]]:
    """Split rows by version, None for those without. Mixed rows must have been decoded with `envelope`."""
    if not is_mixed(decoded):
        yield decoded.versions[0] if decoded.versions else None, decoded
        return
    assert decoded.version is not None
    for version in pc.unique(decoded.version).to_pylist():
        same = pc.is_null(decoded.version) if version is None else pc.equal(decoded.version, version)
        yield version, decoded.filter(pc.fill_null(same, False))
