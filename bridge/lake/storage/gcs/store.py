"""Single requests to a bucket of Google Cloud Storage: what each of them sends, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from google.api_core.retry import Retry

from bridge.errors import SettingsError
from bridge.lake.storage.conditional import Passing, Refused
from bridge.lake.storage.gcs.clients import client, credentials_file, endpoint, is_anonymous
from bridge.lake.storage.gcs.errors import FAILURES, explain, explained, is_gone, is_passing, is_refused
from bridge.lake.storage.objects.copying import CopyingStore
from bridge.lake.storage.objects.store import Absent, Headers
from bridge.lake.storage.protocol import VersionedObject, refuse_outside
from bridge.settings.values.stores import GcsOptions

_ONCE, _PATIENT = (5, 10), (10, 60)
"""Seconds to connect, and to wait for each part of the answer."""
_PATIENCE = Retry(predicate=is_passing, initial=0.2, maximum=8, multiplier=2, timeout=60)
_CHUNK = 16 * 1024**2
_MADE_OF = "singer-bridge-made-of"
_NO_ACCOUNT = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'
"""For an emulator; with no account at all, Rust's object_store asks Google's metadata server for one."""
_BYTES = "application/octet-stream"

T = TypeVar("T")


@dataclass(slots=True)
class GcsStore(CopyingStore):
    """A bucket or a folder of it. Keys are below the folder: `prefix` is empty or ends in a slash."""

    name: str
    prefix: str
    options: GcsOptions
    parallel: int = 10
    """So many connections Google's library keeps."""
    other_etag: ClassVar[str] = "1"
    """Google counts generations in microseconds since 1970."""

    @classmethod
    def of(cls, uri: str, options: GcsOptions) -> GcsStore:
        """The bucket of `gs://name/folder`."""
        name, _, folder = uri.removeprefix("gs://").partition("/")
        if not name:
            raise SettingsError("the bucket has no name", hint="write it as gs://bucket/folder", bucket=uri)
        folder = folder.strip("/")
        return cls(name, f"{folder}/" if folder else "", options)

    @property
    def bucket(self) -> Any:
        """The bucket, of the connection of this process. Nothing is read."""
        with self.explained("open the bucket", ""):
            return client(self.options).bucket(self.name, user_project=self.options.project)

    def place(self, key: str) -> str:
        """An object's URI, for people."""
        return f"gs://{self.name}/{self.prefix}{key}"

    def explained(self, action: str, key: str) -> Any:
        """Turn what Google's library raises into a `LakeError` about this object."""
        return explained(action, self.place(key))

    def get(self, key: str, /) -> VersionedObject | None:
        return self._read(key)

    def get_range(self, key: str, start: int, count: int, etag: str, /) -> VersionedObject | None:
        return self._read(key, start=start, end=start + count - 1, if_generation_match=_generation(etag))

    def _read(self, key: str, **how: int) -> VersionedObject | None:
        def attempt() -> VersionedObject:
            # Anew each time, and whole: the library would go on in the middle of an object that is replaced meanwhile.
            blob = self._blob(key)
            data = blob.download_as_bytes(raw_download=True, retry=None, timeout=_PATIENT, **how)
            return VersionedObject(data, str(blob.generation))

        try:
            return _patiently(attempt)
        except FAILURES as error:
            if is_gone(error):
                return None
            raise explain(error, "read", self.place(key)) from error

    def head(self, key: str, /) -> Headers | None:
        blob = self._blob(key)
        try:
            _patiently(partial(blob.reload, retry=None, timeout=_PATIENT))
        except FAILURES as error:
            if is_gone(error):
                return None
            raise explain(error, "look for", self.place(key)) from error
        return Headers(int(blob.size or 0), str(blob.generation), str((blob.metadata or {}).get(_MADE_OF, "")))

    def put_once(self, key: str, data: bytes, etag: str | None, /) -> str:
        generation = 0 if etag is None else _generation(etag)
        blob = self._blob(key)
        try:
            blob.upload_from_string(
                data, content_type=_BYTES, if_generation_match=generation, retry=None, timeout=_ONCE
            )
        except FAILURES as error:
            if is_refused(error):
                raise Refused from error
            if is_passing(error):
                raise Passing from error
            raise explain(error, "write", self.place(key)) from error
        return str(blob.generation)

    def put(self, key: str, data: bytes, made_of: str = "", /) -> None:
        blob = self._blob(key, made_of)
        send = partial(blob.upload_from_string, data, content_type=_BYTES, retry=None, timeout=_PATIENT)
        with self.explained("write", key):
            _patiently(send)

    def upload(self, key: str, made_of: str = "", /) -> _Upload:
        return _Upload(self, key, self._blob(key, made_of))

    def copy(self, source: str, key: str, /, *, source_etag: str = "", etag: str | None = None) -> None:
        generation = 0 if etag is None else _generation(etag)
        self._copy(source, key, source_etag, if_generation_match=generation)

    def replace(self, source: str, key: str, seen: Headers | None, /) -> None:
        self._copy(source, key, seen.etag if seen else "")

    def _copy(self, source: str, key: str, source_etag: str, **how: int) -> None:
        """Without metadata of its own the new object gets that of the source."""
        if source_etag:
            how["if_source_generation_match"] = _generation(source_etag)
        old, new = self._blob(source), self._blob(key)
        token: str | None = None
        try:
            while True:  # a large object that moves to another kind of disk takes several requests
                token, *_ = _patiently(partial(new.rewrite, old, token=token, retry=None, timeout=_PATIENT, **how))
                if token is None:
                    return
        except FAILURES as error:
            if is_gone(error):
                raise Absent from error
            if is_refused(error):
                raise Refused from error
            raise explain(error, "copy", self.place(key)) from error

    def delete(self, key: str, /) -> None:
        try:
            _patiently(partial(self._blob(key).delete, retry=None, timeout=_PATIENT))
        except FAILURES as error:
            if not is_gone(error):
                raise explain(error, "delete", self.place(key)) from error

    def list(self, folder: str, /, *, deep: bool) -> Iterator[str]:
        prefix = self.prefix + folder
        with self.explained("list", folder):
            pages = self.bucket.list_blobs(
                prefix=prefix,
                delimiter=None if deep else "/",
                fields="items(name),prefixes,nextPageToken",
                retry=_PATIENCE,
                timeout=_PATIENT,
            ).pages
            for page in pages:
                names = [*(blob.name for blob in page), *page.prefixes]
                yield from (name.removeprefix(self.prefix) for name in names)

    def for_libraries(self) -> dict[str, str]:
        options = {
            "google_base_url": endpoint(self.options),
            "google_application_credentials": credentials_file(self.options),
            "google_service_account_key": _NO_ACCOUNT if is_anonymous(self.options) else None,
        }
        return {name: value for name, value in options.items() if value}

    def _blob(self, key: str, made_of: str = "") -> Any:
        """How a request names an object. Raises `CorruptLake` for a key that somebody may take for a path elsewhere."""
        refuse_outside(key)
        blob = self.bucket.blob(self.prefix + key)
        if made_of:
            blob.metadata = {_MADE_OF: made_of}
        return blob


class _Upload:
    """A resumable upload. Google forgets one that is not finished after a week."""

    def __init__(self, store: GcsStore, key: str, blob: Any) -> None:
        self._store, self._key = store, key
        self._file = blob.open(
            "wb", chunk_size=_CHUNK, content_type=_BYTES, ignore_flush=True, retry=_PATIENCE, timeout=_PATIENT
        )

    def add(self, part: bytes, /) -> None:
        with self._store.explained("write", self._key):
            self._file.write(part)

    def finish(self) -> None:
        with self._store.explained("write", self._key):
            self._file.close()

    def discard(self) -> None:
        with suppress(*FAILURES):
            self._file.terminate()


def _patiently(work: Callable[[], T]) -> T:
    """Do the work; tries again for a minute what may pass; the library's own retries would lose their answers."""
    return _PATIENCE(work)()  # type: ignore[no-any-return]


def _generation(etag: str) -> int:
    """An ETag as Google's number. Raises `Refused` for a text that no generation has; 0 would mean: no object."""
    number = int(etag) if etag.isascii() and etag.isdecimal() else 0
    if not number:
        raise Refused
    return number
