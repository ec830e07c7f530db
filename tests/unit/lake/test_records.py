"""What earlier versions wrote into the bucket is read into types and written as the same bytes."""

from __future__ import annotations

import subprocess
import sys
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


_TOGETHER = """
import sys, threading
from pathlib import Path
from bridge.exact_json import loads
from bridge.lake.record_json import read_commit
sys.setswitchinterval(1e-6)
raw, gate, read = loads(Path(sys.argv[1]).read_bytes()), threading.Barrier(12), []
def work():
    gate.wait()
    read.append(read_commit(raw))
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(read) == 12 and all(record == read[0] for record in read)
"""


def test_threads_read_their_first_record_at_the_same_time() -> None:
    """A log is read by many threads at once: the first records that a process reads do not crash it."""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", _TOGETHER, str(SNAPSHOT)], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_record_is_written_as_it_was_read(format_: str) -> None:
    """Runs that ended, and those that were killed."""
    records = dict(_files(format_, "runs"))
    assert len(records) > 4
    for name, data in records.items():
        assert dumps(loads(data), indent=2) == data, name
