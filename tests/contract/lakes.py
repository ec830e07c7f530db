"""Small lakes for the contract's tests: pending files, changes, and what is there, seen from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing

from msgspec import structs

from bridge.lake.records import CommitRecord
from bridge.lake.storage import Add, Change, Remove, Storage
from tests.crash.lakes import Lake
from tests.support.records import commit_record, table_change

PENDING, TRASH = ".bridge/p/pending", ".bridge/p/trash"


def pend(storage: Storage, *names: str, folder: str = "t") -> tuple[Add, ...]:
    """Write pending files, each with its name in it, and return how to publish them into a table."""
    adds = []
    for name in names:
        source, key = f"{PENDING}/{name}.pending", f"{folder}/{name}"
        with closing(storage.open_pending(source, key)) as file:
            file.write(name.encode())
        adds.append(Add(source, key, len(name), file.upload))
    return tuple(adds)


def replacing(storage: Storage, number: int, new: tuple[str, ...], old: tuple[str, ...]) -> Change:
    """The change by which commit `number` replaces the table's files."""
    trash = f"{TRASH}/{number}/t"
    removes = tuple(Remove(f"t/{name}", f"{trash}/{name}.removed") for name in old)
    return Change("t", pend(storage, *new), removes, replace=True, trash=trash)


def record(n: int, adds: tuple[Add, ...], removes: list[str]) -> CommitRecord:
    """The commit `n` of one table, as the log has it."""
    files = [
        {"name": add.key.removeprefix("t/"), "source": add.source, "size": add.size, "rows": 1, "upload": add.upload}
        for add in adds
    ]
    mode = "replace" if removes else "append"
    return commit_record(n, table_change(files, removes, "t", folder="t", schema=None, mode=mode), state=None)


def rewriting(storage: Storage, n: int, files: dict[str, bytes], *added: str) -> CommitRecord:
    """The commit `n` of one table, which gives files other bytes and adds some; all is pending."""
    adds = []
    for name, data in files.items():
        source, key = f"{PENDING}/{n}-{name.rpartition('/')[2]}.pending", f"t/{name}"
        with closing(storage.open_pending(source, key, over=True)) as file:
            file.write(data)
        adds.append(Add(source, key, len(data), file.upload))
    whole = record(n, (*adds, *pend(storage, *added)), list(files))
    return structs.replace(whole, tables=[structs.replace(whole.tables[0], mode="append")])


def table(storage: Storage) -> set[str]:
    return set(storage.walk("t"))


def kept(storage: Storage, n: int) -> dict[str, bytes]:
    """What the trash has of commit `n`."""
    top = f"{TRASH}/{n:020d}/t"
    return {name.removesuffix(".removed"): storage.read(f"{top}/{name}") or b"" for name in storage.walk(top)}


def tree(storage: Storage) -> dict[str, bytes]:
    """Every file of the bucket, by its key."""
    if root := storage.folder:
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    if storage.uri.startswith("az://"):
        from tests.interop.azurite import Container

        return _seen(Container(storage.uri, dict(os.environ)))
    if storage.uri.startswith("gs://"):
        from tests.interop.fakegcs import GcsBucket

        return _seen(GcsBucket(storage.uri, os.environ))
    return _objects(storage.uri)


def _seen(lake: Lake) -> dict[str, bytes]:
    return {key: lake.read(key) or b"" for key in sorted(lake.files(""))}


def _objects(uri: str) -> dict[str, bytes]:
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    bucket, _, folder = uri.removeprefix("s3://").partition("/")
    prefix = f"{folder}/" if folder else ""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    return {key.removeprefix(prefix): client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in sorted(keys)}


def waiting(storage: Storage) -> set[str]:
    """Where pending files are, plain ones and uploads."""
    return {add.source or add.key for add in storage.pending(PENDING)}


CHANGES: dict[str, Callable[[Storage], list[Change]]] = {
    "append": lambda s: [Change("t", pend(s, "n1", "n2"))],
    "append and remove": lambda s: [
        Change(
            "t", pend(s, "n1"), (Remove("t/o1", f"{TRASH}/1/t/o1.removed"), Remove("t/o2", f"{TRASH}/1/t/o2.removed"))
        )
    ],
    "replace": lambda s: [replacing(s, 1, ("n1", "n2"), ("o1", "o2"))],
    "replace by nothing": lambda s: [replacing(s, 1, (), ("o1", "o2"))],
    "two tables": lambda s: [
        replacing(s, 1, ("n1", "n2"), ("o1", "o2")),
        Change("u", pend(s, "n3", folder="u")),
    ],
}

AFTER = {
    "append": {"o1", "o2", "n1", "n2"},
    "append and remove": {"n1"},
    "replace": {"n1", "n2"},
    "replace by nothing": set(),
    "two tables": {"n1", "n2"},
}
