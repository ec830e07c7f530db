"""Single requests to a container: what each of them sends, and what the answers mean."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, BlobClient, BlobPrefix, BlobProperties

from bridge.errors import LakeError, SettingsError
from bridge.lake.storage.azure.clients import Clients, clients
from bridge.lake.storage.azure.errors import FAILURES, code_of, explain, is_absent, is_passing, is_refused
from bridge.lake.storage.conditional import Passing, Refused
from bridge.lake.storage.objects.copying import CopyingStore, Upload
from bridge.lake.storage.objects.store import Absent, Headers
from bridge.lake.storage.protocol import VersionedObject, refuse_outside
from bridge.settings.values.stores import AzureOptions

MADE_OF = "singer_bridge_made_of"
"""The metadata that names the pending file of an object that replaced another. Azure takes identifiers only."""
_FOLDER = "hdi_isfolder"
"""The metadata of a folder, which an account with a hierarchical namespace lists as an object."""
_LONGEST_COPY = 600
"""Seconds. A copy within an account takes an instant, whatever the size."""


@dataclass(slots=True)
class AzureStore(CopyingStore):
    """A container or a folder of it. Keys are below the folder: `prefix` is empty or ends in a slash."""

    scheme: str
    container: str
    host: str
    """That of an `abfss://` URI; empty for `az://`."""
    prefix: str
    options: AzureOptions
    parallel: int = 16
    other_etag: ClassVar[str] = '"0x0"'

    @classmethod
    def of(cls, uri: str, options: AzureOptions) -> AzureStore:
        """The container of `az://name/folder`, or of `abfss://name@host/folder`."""
        scheme, _, rest = uri.partition("://")
        place, _, folder = rest.partition("/")
        container, _, host = place.partition("@")
        if not container or (scheme == "abfss") != bool(host):
            hint = "write az://container/prefix, or abfss://container@account.dfs.core.windows.net/prefix"
            raise SettingsError("not the address of a container", hint=hint, bucket=uri)
        folder = folder.strip("/")
        return cls(scheme, container, host, f"{folder}/" if folder else "", options)

    @property
    def clients(self) -> Clients:
        """The connections of this process."""
        try:
            return clients(self.host, self.options)
        except FAILURES as error:
            raise explain(error, "open the bucket", self.place("")) from None

    def place(self, key: str) -> str:
        """An object's URI, for people."""
        host = f"@{self.host}" if self.host else ""
        return f"{self.scheme}://{self.container}{host}/{self.prefix}{key}"

    @contextmanager
    def explained(self, action: str, key: str) -> Iterator[None]:
        """Turn what Azure's library raises into a `LakeError` about this object."""
        try:
            yield
        except FAILURES as error:
            raise self.failure(error, action, key) from None

    def failure(self, error: BaseException, action: str, key: str) -> LakeError:
        """The error for people about an object; raise it `from None`."""
        return explain(error, action, self.place(key), self.clients.access)

    def blob(self, key: str, *, once: bool = False) -> BlobClient:
        """The requests to one object. Raises `CorruptLake` for a key that a store may take for a path elsewhere."""
        refuse_outside(key)
        connections = self.clients
        client = connections.once if once else connections.patient
        return client.get_blob_client(self.container, self.prefix + key)

    def put_once(self, key: str, data: bytes, etag: str | None) -> str:
        blob, condition = self.blob(key, once=True), _if_match(etag) if etag is not None else {}
        try:
            return str(blob.upload_blob(data, overwrite=etag is not None, **condition)["etag"])
        except FAILURES as error:
            failure = self.failure(error, "write", key)
            if is_refused(error) or (etag is not None and is_absent(error)):
                raise Refused from failure
            if is_passing(error):
                raise Passing from failure
            raise failure from None

    def put(self, key: str, data: bytes, made_of: str = "") -> None:
        blob = self.blob(key)
        with self.explained("write", key):
            blob.upload_blob(data, overwrite=True, metadata=_metadata(made_of))

    def upload(self, key: str, made_of: str = "") -> Upload:
        return _Blocks(self, key, made_of)

    def get(self, key: str) -> VersionedObject | None:
        return self._get(key)

    def get_range(self, key: str, start: int, count: int, etag: str) -> VersionedObject | None:
        return self._get(key, offset=start, length=count, **_if_match(etag))

    def _get(self, key: str, **how: Any) -> VersionedObject | None:
        blob = self.blob(key)
        try:
            answer = blob.download_blob(**how)
            return VersionedObject(answer.readall(), str(answer.properties.etag))
        except FAILURES as error:
            if is_absent(error):
                return None
            raise self.failure(error, "read", key) from None

    def head(self, key: str) -> Headers | None:
        seen = self._settled(key)
        if seen is None:
            return None
        return Headers(int(seen.size), str(seen.etag), str((seen.metadata or {}).get(MADE_OF, "")))

    def copy(self, source: str, key: str, *, source_etag: str = "", etag: str | None = None) -> None:
        over = _if_match(etag) if etag is not None else {"match_condition": MatchConditions.IfMissing}
        self._copy(source, key, source_etag, over)

    def replace(self, source: str, key: str, seen: Headers | None) -> None:
        self._copy(source, key, seen.etag if seen else "", {})

    def _copy(self, source: str, key: str, source_etag: str, over: Mapping[str, Any]) -> None:
        if source_etag:
            over = {**over, "source_etag": source_etag, "source_match_condition": MatchConditions.IfNotModified}
        blob, origin = self.blob(key), self._address(source)
        try:
            answer = blob.start_copy_from_url(origin, **over)
        except FAILURES as error:
            failure = self.failure(error, "copy", source)
            if is_absent(error):
                raise Absent from failure
            if code_of(error) == "PendingCopyOperation":  # of a writer that died; whoever asks again sees its outcome
                self._settled(key)
                raise Refused from failure
            if is_refused(error):
                raise Refused from failure
            raise failure from None
        if answer["copy_status"] != "success":
            after = self._settled(key)
            if after is None or after.copy.id != answer["copy_id"] or after.copy.status != "success":
                hint = "run again: nothing that was committed is lost"
                raise LakeError("the store did not finish a copy", hint=hint, at=self.place(key))

    def _address(self, key: str) -> str:
        """An object's URL with what it takes to read it: the store gives a SAS token no rights on a copy's source."""
        sas, url = self.clients.access.sas, str(self.blob(key).url)
        return url if not sas or "?" in url else f"{url}?{sas}"

    def _settled(self, key: str) -> BlobProperties | None:
        """An object when no copy to it is under way; None if there is none. Deletes what a failed copy leaves."""
        blob, until, wait = self.blob(key), time.monotonic() + _LONGEST_COPY, 0.1
        while True:
            try:
                seen = blob.get_blob_properties()
                if seen.copy.status in ("failed", "aborted") and not seen.size:
                    blob.delete_blob(**_if_match(str(seen.etag)))
                    return None
            except FAILURES as error:
                if is_absent(error):
                    return None
                raise self.failure(error, "look for", key) from None
            if seen.copy.status != "pending":
                return seen
            if time.monotonic() > until:
                hint = "see the account's health in Azure's portal, then run again"
                raise LakeError("a copy within the store does not end", hint=hint, at=self.place(key))
            time.sleep(wait)
            wait = min(2 * wait, 5)

    def delete(self, key: str) -> None:
        blob = self.blob(key)
        try:
            blob.delete_blob(delete_snapshots="include")
        except FAILURES as error:
            if not is_absent(error):
                raise self.failure(error, "delete", key) from None

    def list(self, folder: str, *, deep: bool) -> Iterator[str]:
        container = self.clients.patient.get_container_client(self.container)
        how: dict[str, Any] = {"name_starts_with": self.prefix + folder, "include": ["metadata"]}
        with self.explained("list", folder):
            for one in container.list_blobs(**how) if deep else container.walk_blobs(**how):
                if isinstance(one, BlobPrefix) or _FOLDER not in (one.metadata or {}):
                    yield str(one.name).removeprefix(self.prefix)

    def for_libraries(self) -> dict[str, str]:
        with self.explained("open the bucket", ""):
            access = self.clients.access
            token = access.token()
        result = {
            "azure_storage_account_name": access.account,
            "azure_storage_account_key": access.key,
            "azure_storage_sas_token": access.sas,
            "azure_storage_token": token,
            "azure_storage_endpoint": access.endpoint,
            "azure_allow_http": str(access.endpoint.startswith("http:")).lower(),
        }
        return {name: value for name, value in result.items() if value}


class _Blocks:
    """An upload in parts. Azure drops the parts of one that is not finished after a week."""

    def __init__(self, store: AzureStore, key: str, made_of: str) -> None:
        self._store, self._key, self._made_of = store, key, made_of
        self._blocks: list[BlobBlock] = []

    def add(self, part: bytes) -> None:
        name = f"{len(self._blocks):08d}"
        blob = self._store.blob(self._key)
        with self._store.explained("upload a part", self._key):
            blob.stage_block(name, part)
        self._blocks.append(BlobBlock(name))

    def finish(self) -> None:
        blob = self._store.blob(self._key)
        with self._store.explained("finish an upload", self._key):
            blob.commit_block_list(self._blocks, metadata=_metadata(self._made_of))

    def discard(self) -> None:
        self._blocks.clear()


def _if_match(etag: str) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _metadata(made_of: str) -> dict[str, str] | None:
    return {MADE_OF: made_of} if made_of else None
