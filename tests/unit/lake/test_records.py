"""What earlier versions wrote into the bucket is read into types and written as the same bytes."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.exact_json import dumps, loads
from bridge.lake.record_json import commit_bytes, read_commit
from tests.golden.make import FORMATS, archive

SNAPSHOT = archive("snapshot").with_name("snapshot.json")
"""A record that has a snapshot, every optional key, and keys that a newer version may add."""


def _files(format_: str, folder: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive(format_)) as lake:
        for member in lake:
            if Path(member.name).parent.name == folder and (file := lake.extractfile(member)):
                yield member.name, file.read()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_commit_record_is_written_as_it_was_read(format_: str) -> None:
    """Key order, keys that are absent and every digit stay."""
    records = dict(_files(format_, "commits"))
    assert len(records) > 10
    for name, data in records.items():
        assert commit_bytes(read_commit(loads(data))) == data, name


def test_a_snapshot_is_written_as_it_was_read() -> None:
    """What later records repeat keeps the keys of a newer version."""
    data = SNAPSHOT.read_bytes()
    assert commit_bytes(read_commit(loads(data))) == data


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_record_is_written_as_it_was_read(format_: str) -> None:
    """Runs that ended, and those that were killed."""
    records = dict(_files(format_, "runs"))
    assert len(records) > 4
    for name, data in records.items():
        assert dumps(loads(data), indent=2) == data, name
