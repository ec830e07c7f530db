"""One run on the real code, stopped at each of its requests to the store: `open_committer`, loads, the end.

Committer, recovery, manifests, state file and the S3 storage are those of `bridge`; in the place of boto3 is a `Client`
that asks. A life that has no answer to its next question ends there; asked once more from its beginning, with one more
answer, it goes on. So every order of several runs' requests can be tried.
"""

from __future__ import annotations

import io
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timezone
from types import FrameType, FunctionType, GeneratorType, MethodType
from typing import Any
from unittest import mock

from botocore.exceptions import ClientError, ReadTimeoutError
from msgspec import Struct, msgpack

from bridge.errors import BridgeError, CommitLost, CommitUnknown
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.head import Head
from bridge.lake.commit.open import open_committer
from bridge.lake.file_records import FileAdd
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableState
from bridge.lake.storage import conditional
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.s3.store import S3Store
from bridge.settings.values.stores import S3Options

from .store import (
    FOLDER,
    LOST,
    MANIFEST,
    PARTS,
    PIPELINE,
    STATE,
    File,
    Request,
    etag_of,
    is_over,
    part_of,
    said,
    size_of,
)


@dataclass(frozen=True)
class World:
    """What is tried: `runs` altogether, `alive` at once, each makes `loads` commits at most until the source's `last`.

    `purges` uploads vanish, the answers to `losses` puts are lost. With `overwrite` a load replaces all earlier ones.
    The tap's STATE is another one after each load, or the same again after `repeats` of them. With a part `over` each
    load gives a file that is there new bytes: all rows so far.
    """

    runs: int = 2
    alive: int = 2
    last: int = 1
    loads: int = 1
    parts: tuple[str, ...] = ("upload",)
    overwrite: bool = False
    purges: int = 0
    losses: int = 0
    repeats: int = 0


class Parked(BaseException):
    """The run waits for the answer to `request`; `place` is all that it goes on from."""

    def __init__(self, request: Request, place: Any) -> None:
        self.request, self.place = request, place


class Life:
    """One run, from its opening to its end."""

    current: Life

    def __init__(self, run: int, world: World, answers: tuple[Any, ...], *, merge: bool = True) -> None:
        self.run, self.world, self.answers, self._merge = run, world, answers, merge
        self._at = 0
        self.shows = 0
        """The commit whose STATE is being written into `state.json`."""

    def ask(self, *request: Any) -> Any:
        """Ask the bucket. Raises `Parked` where the answer is not known."""
        if self._at < len(self.answers):
            self._at += 1
            return self.answers[self._at - 1]
        raise Parked(request, _place(sys._getframe(1)) if self._merge else self.answers)

    def end(self) -> str:
        """Live as far as there are answers; return how the run ended. Raises `Parked` if it has not."""
        Life.current = self
        try:
            self._live()
        except CommitLost:
            return "lost"
        except CommitUnknown:
            return "unknown"
        except BridgeError as error:
            message = re.sub(r" \w+=.*", "", error.message)
            return "unknown" if message.startswith("it is not known") else message
        return "closed"

    def _live(self) -> None:
        """Open, load what the source still has, `loads` commits at most, and close."""
        storage = ObjectStorage("s3://b", _Asking("b", "", S3Options(), parallel=1))
        committer = open_committer(storage, PIPELINE, f"run {self.run}", {"closed": self.ask("lease")})
        self.ask("started", committer.snapshot.last_change)
        end = min(self.world.last, loaded(committer) + self.world.loads)
        while loaded(committer) < end:
            self.load(committer)
            self.ask("report", committer.snapshot.last_change, True)  # done
        self.ask("close", committer.snapshot.n)

    def load(self, committer: Committer) -> None:
        """One epoch. The source's next load is the one after the STATE."""
        committer.commit(*self.epoch(committer))

    def epoch(self, committer: Committer) -> tuple[PipelineState, list[Any]]:
        """Write the pending files of the next load; return what its commit says."""
        number, world = loaded(committer) + 1, self.world
        table = committer.snapshot.tables.get("s") or TableState(FOLDER, None)
        over = {part: name for name, file in table.files.items() if is_over(part := part_of(file.size)[0])}
        files = []
        for part in world.parts:
            unique = 256 * PARTS.index(part) + self.run
            name = f"part-{committer.generation:010d}-{number:06d}-{unique:032x}.parquet"
            source = f".bridge/{PIPELINE}/pending/{name}"
            files.append(File(part, number, over.get(part, name), source))
        self.ask("write_pending", tuple(files))
        adds = [_added(file) for file in files]
        removes = list(table.files if world.overwrite else over.values())
        change = table.change("s", adds, removes, replaces=world.overwrite)
        return PipelineState({"load": said(number, world.repeats)}), [change]


def loaded(committer: Committer) -> int:
    """How many loads of the source the table has."""
    table = committer.snapshot.tables.get("s")
    return max((part_of(file.size)[1] for file in table.files.values()), default=0) if table else 0


def _added(file: File) -> FileAdd:
    upload = "" if file.part == "small" else file.source
    size = size_of(file.part, file.load)
    return FileAdd(name=file.name, source=file.source, size=size, rows=file.load, upload=upload)


class _Asking(S3Store):
    """A bucket whose requests are the current life's questions."""

    @property
    def once(self) -> Any:
        return CLIENT

    patient = once


class Client:
    """As much of boto3's client as the storage uses."""

    def get_object(self, *, Key: str, **_: Any) -> Any:
        if (data := Life.current.ask("get", Key)) is None:
            raise _refusal("NoSuchKey", 404)
        return {"Body": io.BytesIO(data), "ETag": etag_of(data)}

    def head_object(self, *, Key: str, **_: Any) -> Any:
        if (there := Life.current.ask("head", Key)) is None:
            raise _refusal("404", 404)
        return {"ContentLength": there[0], "ETag": there[1], "Metadata": {"singer-bridge-made-of": there[2]}}

    def put_object(self, *, Key: str, Body: bytes, IfNoneMatch: str = "", IfMatch: str = "", **_: Any) -> Any:
        shows = Life.current.shows if Key == STATE else 0
        done = Life.current.ask("put", Key, Body, IfNoneMatch or IfMatch, shows)
        if done == LOST:
            raise ReadTimeoutError(endpoint_url="s3://b")
        if not done:
            raise _refusal("PreconditionFailed", 412)
        return {"ETag": etag_of(Body)}

    def copy_object(self, *, CopySource: Any, Key: str, CopySourceIfMatch: str = "", **_: Any) -> None:
        problem = Life.current.ask("copy", CopySource["Key"], Key, CopySourceIfMatch)
        if problem:
            raise _refusal("NoSuchKey", 404) if problem == "gone" else _refusal("PreconditionFailed", 412)

    def delete_object(self, *, Key: str, **_: Any) -> None:
        Life.current.ask("delete", Key)

    def delete_objects(self, **_: Any) -> None:
        raise _refusal("NotImplemented", 501)  # then they are deleted one by one

    def complete_multipart_upload(self, *, UploadId: str, **_: Any) -> None:
        if not Life.current.ask("complete", UploadId):
            raise _refusal("NoSuchUpload", 404)

    def abort_multipart_upload(self, *, UploadId: str, **_: Any) -> None:
        if not Life.current.ask("abort", UploadId):
            raise _refusal("NoSuchUpload", 404)

    def get_paginator(self, name: str) -> Any:
        return _Pages(name)


CLIENT = Client()


class _Pages:
    def __init__(self, name: str) -> None:
        self._name = name

    def paginate(self, *, Prefix: str = "", UploadId: str = "", **_: Any) -> list[Any]:
        if self._name == "list_parts":
            if (size := Life.current.ask("parts", UploadId)) is None:
                raise _refusal("NoSuchUpload", 404)
            return [{"Parts": [{"Size": size, "PartNumber": 1, "ETag": ""}]}]
        if self._name == "list_multipart_uploads":
            return [{"Uploads": [{"Key": key, "UploadId": name} for key, name in Life.current.ask("uploads")]}]
        keys = Life.current.ask("list", Prefix)
        if keys == LOST:
            raise _refusal("AccessDenied", 403)
        return [{"Contents": [{"Key": key} for key in keys]}]


def _refusal(code: str, status: int) -> ClientError:
    facts = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(facts, "Request")  # type: ignore[arg-type]


# what a run goes on from


def _place(frame: FrameType | None) -> Any:
    """Where each function stands that the life is in, with its locals."""
    places = []
    while frame is not None and frame.f_code is not Life.end.__code__:
        seen = tuple((name, _frozen(value)) for name, value in sorted(frame.f_locals.items()))
        places.append((frame.f_code.co_name, frame.f_lasti, seen))
        frame = frame.f_back
    return tuple(places)


_SAME = (Life, Log, ObjectStorage, S3Store, Client, TableLogs, FunctionType, MethodType, type, _Pages)
"""Of these a run has one, or they never change."""


def _frozen(value: Any) -> Any:
    """A value that is equal for what a run cannot tell apart."""
    if value is None or isinstance(value, (str, int, bytes, float)):
        return value
    if isinstance(value, (Struct, Snapshot)):
        return msgpack.encode(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if isinstance(value, dict) or type(value).__name__ == "dict_items":
        return tuple((_frozen(key), _frozen(item)) for key, item in dict(value).items())
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, (set, frozenset)) or type(value).__name__ in ("dict_keys", "dict_values"):
        return frozenset(map(_frozen, value))
    if isinstance(value, _SAME):
        return type(value).__name__
    if isinstance(value, Committer):
        return "Committer", value.generation, _frozen(value.head)
    if isinstance(value, Head):
        return "Head", _frozen(value.snapshot), _frozen(value._versions)
    if is_dataclass(value):
        return type(value).__name__, tuple(_frozen(getattr(value, one.name)) for one in fields(value))
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return frame and (frame.f_code.co_name, frame.f_lasti, _frozen(frame.f_locals))
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    if type(value).__name__ in ("list_iterator", "tuple_iterator", "range_iterator", "dict_itemiterator", "partial"):
        return _frozen(value.__reduce__()[1:])
    return _unknown(value)


_CONSTANT = ("module", "builtin_function_or_method", "UnsetType", "Match", "UUID", "_Clock", "_GeneratorContextManager")


def _unknown(value: Any) -> Any:
    if type(value).__name__ in _CONSTANT:
        return type(value).__name__
    raise TypeError(f"no telling whether two of these are the same: {type(value)}")


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> _Clock:
        return cls(2026, 1, 1, tzinfo=tz or timezone.utc)


def one_by_one(_: Any, work: Callable[[Any], Any], items: Any) -> list[Any]:
    """As `parallel_map`, with all that it goes on from in locals."""
    items, done = list(items), list[Any]()
    for item in items:
        done.append(work(item))
    return done


def _swap(self: Head, key: str, data: bytes, swap: Any = Head.swap) -> bool:
    Life.current.shows = self.snapshot.last_change
    return bool(swap(self, key, data))


def _once() -> Iterator[None]:
    yield


@contextmanager
def explorable() -> Iterator[None]:
    """A run does the same each time: no clock, no chance, no threads, no patience; one manifest stands for two."""
    with mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=Life.current.run)), _patched():
        yield


@contextmanager
def _patched() -> Iterator[None]:
    import bridge.lake.storage.parallel as parallel

    users = [
        module for name, module in sys.modules.items() if name.startswith("bridge.") and hasattr(module, "parallel_map")
    ]
    patches = [mock.patch.object(module, "parallel_map", one_by_one) for module in users]
    patches += [
        mock.patch("bridge.lake.commit.committer.datetime", _Clock),
        mock.patch("bridge.lake.commit.manifests.manifest_keys", lambda _: [MANIFEST]),
        mock.patch.object(conditional, "patient_attempts", _once),
        mock.patch("bridge.lake.storage.s3.store.patient_attempts", _once),
        mock.patch.object(Head, "swap", _swap),
    ]
    del parallel
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()
