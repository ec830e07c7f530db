"""Reads and writes the STATE files of other tools. One module for each tool says what it cannot convert.

Each position is converted without loss, or left out with a note that names it, so that its stream starts from the
beginning; if a person asked for that very stream, it is an error. Nothing is guessed: a file of another tool than the
one named is refused, as each could pass for a flat STATE.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.lake.state.exchange import dataspoc, meltano, olake, singer
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted
from bridge.lake.state.exchange.olake_positions import TAPS


@dataclass(frozen=True, slots=True)
class Format:
    """One tool's way to keep a STATE.

    `read(data, request)` returns the STATE, `write(state, request)` the document. `place(folder, which)` is the file in
    a folder where the tool keeps it. `taps` are those whose own positions can be converted.
    """

    read: Callable[[bytes, ConversionRequest], Converted]
    write: Callable[[Any, ConversionRequest], Converted]
    place: Callable[[Path, str | None], Path] | None = None
    taps: Collection[str] = ()


FORMATS = {
    "singer": Format(singer.read, singer.write),
    "meltano": Format(meltano.read, meltano.write, meltano.place),
    "olake": Format(olake.read, olake.write, taps=TAPS),
    "dataspoc": Format(dataspoc.read, dataspoc.write, dataspoc.place),
}
