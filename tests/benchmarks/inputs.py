"""The input files of a run, made once and reused: `<records>.singer`, and its RECORD lines alone in pieces.

The pieces are for the limit, which reads RECORD lines only (a SCHEMA line in between would become columns): one piece
holds at most one million records, so that a one-shot read of four million needs the memory of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tap_replay.recording import discover

from .shape import BLOCK_RECORDS, block_lines, schema_line, state_line

SEED = 20130101
PIECE_RECORDS = 1_000_000
_BYTES_PER_RECORD = 420
_FORMAT = 1
"""Part of the folder's name: raise it when shape.py changes, so that old files are not read again."""


@dataclass(frozen=True, slots=True)
class Input:
    """One size of the same data: every smaller input is a prefix of every larger one, up to its last STATE."""

    records: int
    singer: Path
    """SCHEMA, RECORDs, a STATE after every 10,000 records and after the last."""
    pieces: tuple[Path, ...]
    """The same RECORD lines, nothing else."""

    @property
    def catalog(self) -> Path:
        """What the tap would discover, which would be a second look at every line."""
        return self.singer.with_suffix(".catalog.json")

    @property
    def size_bytes(self) -> int:
        return self.singer.stat().st_size

    def warm(self) -> None:
        """Reads every byte once, so that no run pays for a cold disk that another did not."""
        for path in (self.singer, *self.pieces):
            _read_through(path)


def prepare(folder: Path, records: int) -> Input:
    """The input of that size; generated where it is not there yet. A half-written one is never taken for whole."""
    home = folder / f"v{_FORMAT}-seed{SEED}"
    home.mkdir(parents=True, exist_ok=True)
    pieces = range(-(-records // PIECE_RECORDS))
    made = Input(records, home / f"{records}.singer", tuple(home / f"{records}.records-{i}.jsonl" for i in pieces))
    if not all(path.exists() for path in (made.singer, *made.pieces)):
        _require_space(home, 2 * records * _BYTES_PER_RECORD)
        _write(made)
    return discovered(made)


def discovered(made: Input) -> Input:
    """The input, its catalog written where it is not there yet."""
    if not made.catalog.exists():
        part = made.catalog.with_suffix(".part")
        part.write_text(json.dumps(discover(str(made.singer))), encoding="utf-8")
        part.replace(made.catalog)
    return made


def _write(target: Input) -> None:
    temporary = {path: path.with_name(path.name + ".part") for path in (target.singer, *target.pieces)}
    with ExitStack() as stack:
        files = {path: stack.enter_context(part.open("wb")) for path, part in temporary.items()}
        singer = files[target.singer]
        singer.write(schema_line())
        for done, chunk in _chunks(target.records):
            singer.write(chunk)
            singer.write(state_line(done))
            _piece(target, files, done).write(chunk)
    for path, part in temporary.items():
        part.replace(path)


def _chunks(records: int) -> Iterator[tuple[int, bytes]]:
    """(records so far, the lines of the next block); the last block may be cut."""
    for block in range(-(-records // BLOCK_RECORDS)):
        done = min(records, (block + 1) * BLOCK_RECORDS)
        lines = block_lines(SEED, block)
        yield done, b"".join(lines[: done - block * BLOCK_RECORDS])


def _piece(target: Input, files: Mapping[Path, BinaryIO], done: int) -> BinaryIO:
    return files[target.pieces[(done - 1) // PIECE_RECORDS]]


def _read_through(path: Path) -> None:
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _require_space(folder: Path, needed_bytes: int) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < 2 * needed_bytes:
        raise SystemExit(
            f"not enough disk for the input and its outputs folder={folder} free={free} input={needed_bytes}"
        )
