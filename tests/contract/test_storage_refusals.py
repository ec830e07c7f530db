"""A bucket that refuses: each refusal is an error of the lake with a hint, and leaves what was there as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import LakeError
from bridge.lake.storage.local.storage import LocalStorage

_REFUSED = """
import contextlib, json, os, sys
from bridge.errors import LakeError
from bridge.lake.storage import Add, Change, open_storage
root, user = sys.argv[1], int(sys.argv[2])
storage = open_storage(root)
if user:
    os.setuid(user)  # root may write everywhere
big = b"x" * 300_000
def pending():
    with contextlib.closing(storage.open_pending("pending/f", "t/f")) as file:
        for _ in range(3):
            file.write(big)
acts = {
    "write": lambda: storage.write("a/k", big),
    "put": lambda: storage.put_if_absent("a/new", big),
    "pending": pending,
    "publish": lambda: storage.publish([Change("t", (Add("a/k", "t/k", 3),))]),
}
for name in sys.argv[3].split(","):
    try:
        acts[name]()
        print(json.dumps([name, None, None, None]))
    except LakeError as error:
        print(json.dumps([name, error.message, error.hint, error.exit_code]))
print(json.dumps([(storage.read("a/k") or b"").decode(), sorted(os.listdir(root + "/a"))]))
"""


def _refusals(command: list[str], root: Path, acts: str, user: int = 0) -> tuple[list[list[str]], list[object]]:
    """What each act met with in a bucket that holds `a/k`, and what is in it afterwards."""
    arguments = [sys.executable, "-c", _REFUSED, str(root), str(user), acts]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *refused, left = [json.loads(line) for line in done.stdout.splitlines()]
    return refused, left


def _mounted(folder: Path, options: str, then: str = "true") -> list[str]:
    """A command that runs another in a mount namespace of its own, with a small filesystem at `folder`."""
    mount = f'mount -t tmpfs -o {options} tmpfs "$0" && mkdir "$0/a" && printf old > "$0/a/k" && {then} && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(folder)]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount a filesystem in a namespace")
    return command


def test_full_disk(tmp_path: Path) -> None:
    """A full disk is told as such, with a hint; nothing torn is left under any name, and the old bytes stand."""
    refused, left = _refusals(_mounted(tmp_path, "size=200k"), tmp_path, "write,put,pending")
    for _, message, hint, code in refused:
        assert "No space left on device" in message
        assert ("disk is full" in hint, code) == (True, 3)
    assert left == ["old", ["k"]]


def test_read_only_disk(tmp_path: Path) -> None:
    """A read-only filesystem is told as such, for each way to write."""
    command = _mounted(tmp_path, "size=1m", 'mount -o remount,ro "$0"')
    refused, left = _refusals(command, tmp_path, "write,put,pending,publish")
    assert [(name, code, "read-only" in hint) for name, _, hint, code in refused] == [
        (name, 3, True) for name in ("write", "put", "pending", "publish")
    ]
    assert left == ["old", ["k"]]


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that any user can reach, also where the tests run as root and pytest's own folders are closed."""
    folder = Path(tempfile.mkdtemp(dir="/tmp" if os.getuid() == 0 else tmp_path_factory.mktemp("open")))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_unwritable_folder(open_folder: Path) -> None:
    """Without the right to write each act names the folder and says which rights are needed."""
    (open_folder / "a").mkdir()
    (open_folder / "a/k").write_bytes(b"old")
    for folder in (open_folder / "a", open_folder):
        folder.chmod(0o555)
    user = 65534 if os.getuid() == 0 else 0
    try:
        refused, left = _refusals([], open_folder, "write,put,pending,publish", user)
    finally:
        for folder in (open_folder, open_folder / "a"):
            folder.chmod(0o755)
    for _, message, hint, code in refused:
        assert f"path={open_folder}" in message
        assert ("needs read and write rights" in hint, code) == (True, 3)
    assert left == ["old", ["k"]]


def test_bucket_that_is_a_file(tmp_path: Path) -> None:
    """A file where the bucket's folder should be is a clear error, not a traceback."""
    (tmp_path / "bucket").write_text("a file")
    storage = LocalStorage(tmp_path / "bucket")
    for act in (
        lambda: storage.write("a/k", b""),
        lambda: storage.put_if_absent("k", b""),
        lambda: storage.open_pending("k", "t/k"),
        lambda: storage.read("k"),
        lambda: list(storage.list("k")),
    ):
        with pytest.raises(LakeError) as caught:
            act()
        assert "is a file" in caught.value.hint
