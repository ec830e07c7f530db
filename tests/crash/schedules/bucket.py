"""A bucket in memory, and as much of boto3's client as the storage uses: requests that take time, and go wrong.

A request is sent, has its effect all at once some time later, and is answered later still. Between the three anything
may happen to its sender. The patient client sends again what failed or had no answer, as boto3 does: a request may have
its effect twice.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from greenlet import getcurrent

from bridge.lake.storage.s3.store import MADE_OF

from .world import Process, World, current

_PATIENCE = 10.0
"""Seconds after which a client gives up an answer."""
_ATTEMPTS = 5
_NAMED = 0.8
"""How often an upload that is purged is one of the last commit's."""
_SLOW = 0.02
"""How often a request takes long."""


class Object(NamedTuple):
    """What is at a key."""

    data: bytes
    etag: str
    made_of: str = ""


class Upload(NamedTuple):
    """An upload that is not completed."""

    key: str
    made_of: str
    parts: dict[int, bytes]

    @property
    def data(self) -> bytes:
        return b"".join(self.parts[number] for number in sorted(self.parts))


@dataclass(frozen=True)
class Fault:
    """What happens to the request `at` of a run, counted from 1 among those `of` a kind; how late, or for how long."""

    at: int
    kind: str
    seconds: float = 0.0
    of: str = ""
    """Words that are all in the request."""
    until: str = ""
    """Who sleeps wakes up sooner, once another run has sent such a request."""


class Faults:
    """The faults of one run."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = [(fault, fault.of.split()) for fault in faults]
        self._came = [0] * len(self._faults)

    def of(self, what: str) -> Fault | None:
        """What happens to this request, the next one."""
        found = None
        for number, (fault, words) in enumerate(self._faults):
            if all(word in what for word in words):
                self._came[number] += 1
                found = fault if self._came[number] == fault.at else found
        return found


DEATHS = ("dies before", "dies after", "dies while it is on its way")
UPLOADS_GONE = ("sleeps, and an upload goes", "dies, and an upload goes")
TROUBLE = ("lost answer", "late", "refused", "fails", "cut off", "sleeps before", "sleeps after", "stop", "purge")


@dataclass
class Bucket:
    """The objects and uploads. `watch` is told of each change of a key, once it is made."""

    objects: dict[str, Object] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    watch: Callable[[str], None] = lambda _key: None
    page: int = 1000
    """How many keys an answer lists."""
    calm: bool = False
    """Nobody but one run is there: its requests have their effect at once."""
    lists_pending: bool = True
    """Whether it lets runs list pending files and uploads. Nothing may depend on it."""
    begun: int = 0
    sleepers: list[tuple[Process, list[str]]] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    """The uploads that the last commit names."""
    purged: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    """The faults that came to pass."""

    def put(self, key: str, data: bytes, made_of: str = "", parts: int = 0) -> Object:
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.objects[key] = made = Object(data, f'"{etag}-{parts}"' if parts else f'"{etag}"', made_of)
        self.watch(key)
        return made

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None):
            self.watch(key)

    def wake(self, world: World, by: Process, what: str) -> None:
        """Wake whoever sleeps until this request."""
        for sleeper in [one for one in self.sleepers if one[0] is not by]:
            if all(word in what for word in sleeper[1]):
                self.sleepers.remove(sleeper)
                sleeper[0].until = world.now
                world.note("the world", f"{sleeper[0].name} wakes up")
                world.thaw(sleeper[0])

    def purge(self, chosen: float) -> str:
        """Lose an upload, as by a rule of the store."""
        if not self.uploads:
            return ""
        names = sorted(self.uploads.keys() & self.named if chosen < _NAMED else self.uploads) or sorted(self.uploads)
        name = names[int(chosen * 997) % len(names)]
        self.purged.append(self.uploads.pop(name).key)
        return self.purged[-1]

    def below(self, prefix: str, after: str, *, deep: bool) -> tuple[list[str], bool]:
        """The next keys and folders, and whether there are more."""
        if "/pending/" in prefix and not self.lists_pending:
            raise refusal("AccessDenied", 403)
        names = set()
        for key in self.objects:
            if key.startswith(prefix):
                folder, slash, _ = key[len(prefix) :].partition("/")
                names.add(key if deep or not slash else f"{prefix}{folder}/")
        rest = sorted(name for name in names if name > after)
        return rest[: self.page], len(rest) > self.page


def refusal(code: str, status: int) -> ClientError:
    facts = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(facts, "Request")


class _Failed(Exception):
    """No answer, or none that helps: `cause` is boto3's error."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Client:
    """boto3's client; `patient` sends again."""

    def __init__(self, bucket: Bucket, *, patient: bool) -> None:
        self._bucket, self._patient = bucket, patient

    # how a request goes

    def _ask(self, verb: str, key: str, effect: Callable[[], Any], *, late: bool = False) -> Any:
        """`late`: it may have its effect after its sender has given up."""
        task = current()
        if task is None or getcurrent() is not task.greenlet:  # the judge, or a library's own thread
            return effect()
        world, process = task.world, task.process
        world.check()
        process.requests += 1
        fault = process.on_request(f"{verb} {key}")
        for attempt in range(_ATTEMPTS if self._patient else 1):
            try:
                return self._send(world, process, f"{verb} {key}", effect, fault, late=late)
            except _Failed as failed:
                last = failed.cause
            if not (fault and fault.kind == "fails"):
                fault = None
            world.sleep(2.0**attempt * world.dice(process.name).random())
        raise last

    def _send(
        self, world: World, process: Process, what: str, effect: Callable[[], Any], fault: Fault | None, *, late: bool
    ) -> Any:
        dice, number = world.dice(process.name), process.requests
        going, coming = dice.expovariate(200.0), dice.expovariate(200.0)
        if dice.random() < _SLOW:
            going += dice.expovariate(1.0)
        if fault:
            world.note(process.name, f"{number} {what}: {fault.kind}")
            self._bucket.struck.append(fault.kind)
            self._before(world, process, effect, fault, late=late)
        if not self._bucket.calm:
            world.sleep(going)
        if process.cut_until > world.now:
            world.sleep(_PATIENCE)
            raise _Failed(ConnectTimeoutError(endpoint_url="s3://lake"))
        answer: Any = None
        problem: ClientError | None = None
        try:
            answer = effect()
        except ClientError as error:
            problem = error
        self._bucket.wake(world, process, what)
        said = problem.response["Error"]["Code"] if problem else ""
        world.note(process.name, f"{number} {what} {said}")
        if fault:
            self._after(world, process, fault)
        world.sleep(coming)
        if problem:
            raise problem
        return answer

    def _before(self, world: World, process: Process, effect: Callable[[], Any], fault: Fault, *, late: bool) -> None:
        kind = fault.kind
        if kind.endswith("an upload goes") and (lost := self._bucket.purge(fault.seconds % 1)):
            world.note("store", f"purges the upload to {lost}")
        if kind in ("dies before", "dies, and an upload goes"):
            world.kill(process)
        elif kind == "dies while it is on its way":
            if late:
                world.at(world.now + fault.seconds, lambda: _unheard(effect))
            world.kill(process)
        elif kind in ("sleeps before", "sleeps, and an upload goes"):
            self._sleep(world, process, fault)
        elif kind == "cut off":
            process.cut_until = world.now + fault.seconds
        elif kind == "late" and late:
            world.at(world.now + fault.seconds, lambda: _unheard(effect))
            world.sleep(_PATIENCE)
            raise _Failed(ReadTimeoutError(endpoint_url="s3://lake"))
        elif kind in ("refused", "fails"):
            world.sleep(0.01)
            raise _Failed(refusal("ServiceUnavailable", 503))
        elif kind == "stop":
            process.stop()
        elif kind == "purge" and (lost := self._bucket.purge(fault.seconds % 1)):
            world.note("store", f"purges the upload to {lost}")

    def _sleep(self, world: World, process: Process, fault: Fault) -> None:
        process.until = world.now + fault.seconds
        if fault.until:
            self._bucket.sleepers.append((process, fault.until.split()))

    def _after(self, world: World, process: Process, fault: Fault) -> None:
        if fault.kind == "dies after":
            world.kill(process)
        elif fault.kind == "sleeps after":
            self._sleep(world, process, fault)
        elif fault.kind == "lost answer":
            world.sleep(_PATIENCE)
            raise _Failed(ReadTimeoutError(endpoint_url="s3://lake"))

    # what it does

    def get_object(self, *, Key: str, Range: str = "", IfMatch: str = "", **_: Any) -> Any:
        def effect() -> Any:
            there = self._there(Key)
            if IfMatch and there.etag != IfMatch:
                raise refusal("PreconditionFailed", 412)
            data = there.data
            if Range:
                first, last = Range.removeprefix("bytes=").split("-")
                data = data[int(first) : int(last) + 1]
            return {"Body": io.BytesIO(data), "ETag": there.etag}

        return self._ask("get", Key, effect)

    def head_object(self, *, Key: str, **_: Any) -> Any:
        def effect() -> Any:
            there = self._there(Key, "404")
            return {"ContentLength": len(there.data), "ETag": there.etag, "Metadata": {MADE_OF: there.made_of}}

        return self._ask("head", Key, effect)

    def _there(self, key: str, code: str = "NoSuchKey") -> Object:
        if key not in self._bucket.objects:
            raise refusal(code, 404)
        return self._bucket.objects[key]

    def put_object(self, *, Key: str, Body: bytes, IfNoneMatch: str = "", IfMatch: str = "", **_: Any) -> Any:
        data = bytes(Body)

        def effect() -> Any:
            there = self._bucket.objects.get(Key)
            if (IfNoneMatch and there) or (IfMatch and there and there.etag != IfMatch):
                raise refusal("PreconditionFailed", 412)
            if IfMatch and not there:
                raise refusal("NoSuchKey", 404)
            return {"ETag": self._bucket.put(Key, data).etag}

        return self._ask("put", Key, effect, late=True)

    def copy_object(self, *, CopySource: Any, Key: str, CopySourceIfMatch: str = "", **_: Any) -> None:
        def effect() -> None:
            there = self._there(CopySource["Key"])
            if CopySourceIfMatch and there.etag != CopySourceIfMatch:
                raise refusal("PreconditionFailed", 412)
            self._bucket.put(Key, there.data)

        self._ask(f"copy {CopySource['Key']} to", Key, effect)

    def delete_object(self, *, Key: str, **_: Any) -> None:
        self._ask("delete", Key, lambda: self._bucket.delete(Key), late=True)

    def delete_objects(self, *, Delete: Any, **_: Any) -> Any:
        keys = [one["Key"] for one in Delete["Objects"]]

        def effect() -> Any:
            for key in keys:
                self._bucket.delete(key)
            return {}

        return self._ask("delete", " ".join(keys), effect, late=True)

    def create_multipart_upload(self, *, Key: str, Metadata: Any = None, **_: Any) -> Any:
        def effect() -> Any:
            self._bucket.begun += 1
            name = f"upload-{self._bucket.begun}"
            self._bucket.uploads[name] = Upload(Key, (Metadata or {}).get(MADE_OF, ""), {})
            return {"UploadId": name}

        return self._ask("begin an upload to", Key, effect)

    def upload_part(self, *, Key: str, UploadId: str, PartNumber: int, Body: bytes, **_: Any) -> Any:
        def effect() -> Any:
            self._upload(UploadId).parts[PartNumber] = bytes(Body)
            return {"ETag": f'"part {PartNumber}"'}

        return self._ask(f"part of {UploadId} to", Key, effect, late=True)

    def _upload(self, name: str) -> Upload:
        if name not in self._bucket.uploads:
            raise refusal("NoSuchUpload", 404)
        return self._bucket.uploads[name]

    def complete_multipart_upload(self, *, Key: str, UploadId: str, **_: Any) -> None:
        def effect() -> None:
            upload = self._upload(UploadId)
            del self._bucket.uploads[UploadId]
            self._bucket.put(Key, upload.data, upload.made_of, len(upload.parts))

        self._ask(f"complete {UploadId} to", Key, effect, late=True)

    def abort_multipart_upload(self, *, Key: str, UploadId: str, **_: Any) -> None:
        def effect() -> None:
            self._upload(UploadId)
            del self._bucket.uploads[UploadId]

        self._ask(f"abort {UploadId} to", Key, effect, late=True)

    def get_paginator(self, name: str) -> Any:
        pages = {"list_objects_v2": self._list, "list_parts": self._parts, "list_multipart_uploads": self._open}
        return SimpleNamespace(paginate=pages[name])

    def _list(self, *, Prefix: str = "", Delimiter: str = "", **_: Any) -> Iterator[Any]:
        after, more = "", True
        while more:
            page = partial(self._bucket.below, Prefix, after, deep=not Delimiter)
            names, more = self._ask("list", Prefix, page)
            after = names[-1] if names else ""
            folders = [name for name in names if name.endswith("/")]
            yield {
                "Contents": [{"Key": name} for name in names if not name.endswith("/")],
                "CommonPrefixes": [{"Prefix": name} for name in folders],
            }

    def _parts(self, *, Key: str, UploadId: str, **_: Any) -> Iterator[Any]:
        def effect() -> Any:
            parts = self._upload(UploadId).parts.items()
            return [{"Size": len(data), "PartNumber": number, "ETag": ""} for number, data in sorted(parts)]

        yield {"Parts": self._ask(f"parts of {UploadId} to", Key, effect)}

    def _open(self, **_: Any) -> Iterator[Any]:
        def effect() -> Any:
            if not self._bucket.lists_pending:
                raise refusal("AccessDenied", 403)
            return [{"Key": one.key, "UploadId": name} for name, one in self._bucket.uploads.items()]

        yield {"Uploads": self._ask("uploads", "", effect)}


def _unheard(effect: Callable[[], Any]) -> None:
    """Have an effect of which nobody hears."""
    try:
        effect()
    except ClientError:
        return
