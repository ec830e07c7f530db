"""Checks of a bucket: can it be written, does it keep two writers apart, does it publish? Each store adds its own.

Each is tried under a name that no reader sees, then removed. If the bucket does not exist yet, the nearest folder above
it is tried. Nothing is left behind, not even a folder.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from bridge.durations import duration
from bridge.errors import LakeError
from bridge.findings import Check, Finding, fine, warning
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Add, Change, Storage
from bridge.lake.storage.local.folders import nearest
from bridge.lake.storage.local.storage import LocalStorage
from bridge.lake.storage.objects import ObjectStorage
from bridge.settings.options import Pipeline
from bridge.settings.values.stores import section_of_bucket

_ROOMY = 1 << 30
"""With fewer free bytes, a bucket gets a warning."""
_SKEW = timedelta(seconds=5)
_LISTED = 5


class _Trial:
    """The bucket, or the nearest folder above one that does not exist yet, and a prefix in it for our trials."""

    def __init__(self, bucket: Storage) -> None:
        self.bucket = self.storage = bucket
        self.folder: Path | None = None
        if isinstance(bucket, LocalStorage):
            self.folder = nearest(bucket.root)
            if self.folder != bucket.root:
                self.storage = LocalStorage(self.folder)
        self.prefix = f".doctor-{uuid.uuid4().hex}"

    def remove(self, *keys: str) -> None:
        """Remove what a trial left, as far as possible."""
        for key in keys:
            with suppress(LakeError):
                self.storage.delete(key)
        if self.folder:
            shutil.rmtree(self.folder / self.prefix, ignore_errors=True)


def bucket_checks(pipeline: Pipeline, bucket: Storage, first: list[Check], last: list[Check]) -> list[Check]:
    """The checks of a pipeline's bucket; `first` and `last` are made before and after those that write to it."""
    trial = _Trial(bucket)
    checks: list[Check] = [
        *first,
        ("put-if-absent", lambda: _put_if_absent(trial)),
        ("publish", lambda: _publish(trial)),
        *last,
    ]
    section = section_of_bucket(bucket.uri)  # each library takes a while to load
    if section == "s3":
        from bridge.lake.storage.s3.checks import s3_checks

        return s3_checks(pipeline, bucket, checks)
    if section == "azure" and isinstance(bucket, ObjectStorage):
        from bridge.lake.storage.azure.checks import azure_checks

        return azure_checks(bucket, checks)
    if section == "gcs" and isinstance(bucket, ObjectStorage):
        from bridge.lake.storage.gcs.checks import gcs_checks

        return gcs_checks(bucket, checks)
    checks = [("bucket", lambda: _bucket(trial)), *checks]
    if isinstance(bucket, LocalStorage) and trial.folder:
        root, folder = bucket.root, trial.folder
        checks += [
            ("clock", lambda: _clock(trial, folder)),
            ("locks", lambda: _locks(trial, folder)),
            ("rights", lambda: _rights(root, pipeline)),
            ("free space", lambda: _space(folder, max(_ROOMY, 2 * pipeline.commit.bytes))),
        ]
    return checks


def _bucket(trial: _Trial) -> Iterator[Finding]:
    key, data = f"{trial.prefix}/probe", b"is anybody there?"
    try:
        trial.storage.write(key, data)
        if trial.storage.read(key) != data:
            raise LakeError(
                "the bucket returns other bytes than were written", hint="look at its filesystem", bucket=key
            )
    finally:
        trial.remove(key)
    exists = trial.storage.uri == trial.bucket.uri
    place = "" if exists else f"; it does not exist yet, the first run makes it in {trial.storage.uri}"
    yield fine("bucket", f"{trial.bucket.uri} can be written and read{place}")


def _put_if_absent(trial: _Trial) -> Iterator[Finding]:
    """Two writers of one commit number: exactly one may win, and its bytes must stand."""
    key = f"{trial.prefix}/number"
    try:
        first, second = (trial.storage.put_if_absent(key, data) for data in (b"first", b"second"))
        stored = trial.storage.read(key)
    finally:
        trial.remove(key)
    if not first or second or stored != b"first":
        hint = "two runs could both commit here: choose another place for the bucket"
        raise LakeError("the bucket does not keep two writers apart", hint=hint, bucket=trial.storage.uri)
    yield fine("put-if-absent", "the second writer of one name is refused")


def _publish(trial: _Trial) -> Iterator[Finding]:
    source, folder = f"{trial.prefix}/pending", f"{trial.prefix}/table"
    key, data = f"{folder}/part", b"rows"
    try:
        file = trial.storage.open_pending(source, key)
        file.write(data)
        file.close()
        trial.storage.publish([Change(folder, adds=(Add(source, key, len(data)),))])
        if trial.storage.read(key) != data or trial.storage.read(source) is not None:
            hint = "renames do not work as they should: choose another place for the bucket"
            raise LakeError("a published file is not what was written", hint=hint, bucket=trial.storage.uri)
    finally:
        trial.remove(source, key)
    yield fine("publish", "pending files are written, made durable and published")


def _clock(trial: _Trial, folder: Path) -> Iterator[Finding]:
    key = f"{trial.prefix}/clock"
    try:
        before = time.time()
        trial.storage.write(key, b"what time is it?")
        written, after = (folder / key).stat().st_mtime, time.time()
    finally:
        trial.remove(key)
    skew = max(before - written, written - after, 0.0)
    if skew > _SKEW.total_seconds():
        fix = "set both clocks by NTP; until then retention and the ages shown are wrong by the same time"
        yield warning("clock", f"the bucket's clock and ours differ by {duration(skew)}", fix)
    else:
        yield fine("clock", "the bucket's clock agrees with ours")


def _locks(trial: _Trial, folder: Path) -> Iterator[Finding]:
    key = f"{trial.prefix}/lock"
    try:
        trial.storage.write(key, b"")
        with (folder / key).open("r+b") as one, (folder / key).open("r+b") as other:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                hint = "two runs would not see each other here; use a local disk, or NFS 4"
                raise LakeError("the bucket's filesystem does not keep locks", hint=hint, folder=folder)
    except OSError as error:
        hint = "the bucket's filesystem has no file locks; use a local disk, or NFS 4"
        raise LakeError(f"cannot lock a file: {error.strerror}", hint=hint, folder=folder) from error
    finally:
        trial.remove(key)
    yield fine("locks", "a file can be locked, and the lock holds")


def _rights(root: Path, pipeline: Pipeline) -> Iterator[Finding]:
    """Another user's run may have left folders that ours cannot write."""
    own, tables = root / pipeline_key(pipeline.name), root / pipeline.table_root
    folders = [root, root / ".bridge", own, tables, *_folders(own), *_folders(tables)]
    closed = [folder for folder in folders if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK)]
    lease = own / "lease.json"
    closed += [lease] if lease.exists() and not os.access(lease, os.R_OK | os.W_OK) else []
    if closed:
        shown = ", ".join(map(str, closed[:_LISTED])) + (", ..." if len(closed) > _LISTED else "")
        command = shlex.join(["chown", "-R", str(os.geteuid()), str(root)])
        hint = f"give them to the user that runs singer-bridge, such as by {command}"
        raise LakeError("this user cannot read or write folders of the lake", hint=hint, closed=shown)
    yield fine("rights", "this user can read and write every folder of this pipeline")


def _folders(folder: Path) -> list[Path]:
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        return []
    return sorted(place for place in folder.iterdir() if place.is_dir())


def _space(folder: Path, needed: int) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < needed:
        yield warning("free space", text, f"free some space: keep {needed / (1 << 30):.1f} GiB or more free")
    else:
        yield fine("free space", text)
