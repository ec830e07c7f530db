"""Whose a table is: one pipeline's, or theirs who agree to share it; and its manifest, which several write then."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CorruptLake, LakeError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.ownership import Owner, claim, owned_by, owners_of, tables_of
from bridge.lake.paths import pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import table_change

A, B, C = (Owner(name, "s") for name in "abc")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def test_the_first_to_come_owns_it(storage: LocalStorage) -> None:
    """A table is its first pipeline's, for good, and for each of its runs; nobody else's files get into it."""
    assert claim(storage, "t", A, shared=False) == claim(storage, "t", A, shared=False) == []
    with pytest.raises(LakeError, match="the table belongs to another pipeline") as caught:
        claim(storage, "t", B, shared=True)
    assert "shared: true" in caught.value.hint
    assert owners_of(storage, "t") == ([A], False)
    assert (owned_by(storage, "t", "a"), owned_by(storage, "t", "b")) == (True, False)


def test_all_who_share_a_table_say_so(storage: LocalStorage) -> None:
    """Each is told of the others; one that does not agree to share is refused, also if it was there first."""
    assert claim(storage, "t", A, shared=True) == []
    assert claim(storage, "t", B, shared=True) == [A]
    assert claim(storage, "t", C, shared=True) == [A, B]
    assert claim(storage, "t", A, shared=True) == [B, C]
    for owner in (A, B, Owner("d", "s")):
        with pytest.raises(LakeError, match="belongs to another pipeline"):
            claim(storage, "t", owner, shared=False)
    assert not owned_by(storage, "t", "a")


def test_one_may_begin_to_share_and_cease_to(storage: LocalStorage) -> None:
    """While it is alone in its table a pipeline's word counts as it is today."""
    claim(storage, "t", A, shared=False)
    claim(storage, "t", A, shared=True)
    claim(storage, "t", A, shared=False)
    with pytest.raises(LakeError):
        claim(storage, "t", B, shared=True)
    claim(storage, "t", A, shared=True)
    assert claim(storage, "t", B, shared=True) == [A]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"pipeline": "a"}', b'{"pipeline": "a", "stream": "s", "with": [1]}'])
def test_an_unreadable_owner_is_nobody(storage: LocalStorage, text: bytes) -> None:
    """It is not guessed whose a table is."""
    storage.write(".bridge/tables/t.json", text)
    with pytest.raises(CorruptLake, match="owner is unreadable"):
        claim(storage, "t", A, shared=True)


def commit(storage: LocalStorage, committer: Committer, number: int) -> str:
    """Commit one file of a shared table."""
    name = f"part-{committer.generation:010d}-{number:06d}-{committer.log.pipeline}.parquet"
    source = pipeline_key(committer.log.pipeline, "pending", f"{name}.pending")
    with closing(storage.open_pending(source, f"t/{name}")) as file:
        file.write(b"rows")
    add = {"name": name, "source": source, "size": 4, "rows": 1}
    committer.commit(PipelineState({"n": number}), [table_change([add], folder="t", shared=True)])
    return name


def manifest(storage: LocalStorage, name: str = "t.manifest") -> set[str]:
    return {Path(line).name for line in (storage.read(f".bridge/tables/{name}") or b"").decode().splitlines()}


def test_a_shared_manifest_has_the_files_of_all(storage: LocalStorage) -> None:
    """Whoever commits writes the files of the others, too, whatever it knew of the manifest."""
    committers = [open_committer(storage, owner.pipeline, "run", last={}) for owner in (A, B)]
    for owner in (A, B):
        claim(storage, "t", owner, shared=True)
    names = set()
    for number in range(3):
        for committer in committers:
            names.add(commit(storage, committer, number))
            assert manifest(storage) == manifest(storage, "t.symlinks/manifest") == names == set(storage.list("t"))
    assert sum(len(table.files) for table in tables_of(storage, [A, B]).values()) == 6


_COMMITS = """
import sys
from pathlib import Path
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.storage.local.storage import LocalStorage
from tests.unit.lake.test_ownership import commit
storage = LocalStorage(Path(sys.argv[1]))
committer = open_committer(storage, sys.argv[2], "run", last={})
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    commit(storage, committer, number)
"""


def test_two_processes_write_one_manifest(storage: LocalStorage) -> None:
    """Of two that commit as fast as they can none leaves a file of the other out."""
    for owner in (A, B):
        claim(storage, "t", owner, shared=True)
    command = [sys.executable, "-c", _COMMITS, storage.uri]
    root = Path(__file__).parents[3]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": root}
    writers = [subprocess.Popen([*command, owner.pipeline], **pipes) for owner in (A, B)]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        writer.communicate(b"\n")
    assert [writer.returncode for writer in writers] == [0, 0]
    assert manifest(storage) == manifest(storage, "t.symlinks/manifest") == set(storage.list("t"))
    assert len(manifest(storage)) == 120
