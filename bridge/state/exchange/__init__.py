"""Reads and writes the STATE files of other tools. One module for each tool says what it cannot convert.

Each position is converted without loss, or an error names the one that would be lost. Nothing is guessed: a file of
another tool than the one named is refused, as each could pass for a flat STATE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.state.exchange import dataspoc, meltano, olake, singer

__all__ = ["FORMATS", "Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """One tool's way to keep a STATE.

    `read(data, which, streams)` returns the STATE; `which` is its name where a file holds several, `streams` those that
    are wanted, empty for all. `write(state)` returns the document. `place(folder, which)` is the file in a folder where
    the tool keeps it.
    """

    read: Callable[[bytes, str | None, Collection[str]], Any]
    write: Callable[[Any], Any]
    place: Callable[[Path, str | None], Path] | None = None


FORMATS = {
    "singer": Format(singer.read, singer.write),
    "meltano": Format(meltano.read, meltano.write, meltano.place),
    "olake": Format(olake.read, olake.write),
    "dataspoc": Format(dataspoc.read, dataspoc.write, dataspoc.place),
}
