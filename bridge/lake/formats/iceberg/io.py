"""How pyiceberg reads and writes a table's metadata: through the storage of the lake.

So they are durable before a catalog names them, encrypted and owned as all else in the bucket is, and reached by the
same keys. Data files are not written here.
"""

from __future__ import annotations

from io import BytesIO

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from bridge.errors import LakeError
from bridge.lake.formats.protocol import folder_uri
from bridge.lake.storage import Storage

STORAGE = "singer-bridge.storage"
"""The property of a catalog, in memory only, that is the bucket."""


MISREAD = frozenset("#?")
"""Characters at which pyiceberg ends the path of a URI. It takes them as they are in a path without a scheme."""


def location_of(storage: Storage, folder: str) -> str:
    """A table's folder as Iceberg names it: a URI where readers understand it. Nothing is percent-encoded."""
    path = f"{storage.uri}/{folder}"
    return path if MISREAD.intersection(path) else folder_uri(storage, folder)


class BucketIO(FileIO):
    """The files of a bucket by their URIs. Raises `LakeError` for those of another place."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.storage: Storage = properties[STORAGE]

    def key(self, location: str) -> str:
        """The key of a URI, or of a local path."""
        for root in (f"file://{self.storage.uri}", self.storage.uri):
            if location.startswith(f"{root}/"):
                return location.removeprefix(f"{root}/")
        hint = "choose another destination.catalog.namespace, or drop that table: it is not this pipeline's"
        raise LakeError("a table of that name is in the catalog, elsewhere", hint=hint, at=location)

    def new_input(self, location: str) -> _Input:
        return _Input(location, self.key(location), self.storage)

    def new_output(self, location: str) -> _Output:
        return _Output(location, self.key(location), self.storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.storage.delete(self.key(location if isinstance(location, str) else location.location))


class _Input(InputFile):
    def __init__(self, location: str, key: str, storage: Storage) -> None:
        super().__init__(location)
        self._key, self._storage = key, storage

    def __len__(self) -> int:
        return self._storage.size(self._key) or 0

    def exists(self) -> bool:
        return self._storage.size(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:
        data = self._storage.read(self._key)
        if data is None:
            raise FileNotFoundError(f"{self.location} is not there")
        return BytesIO(data)


class _Output(OutputFile):
    def __init__(self, location: str, key: str, storage: Storage) -> None:
        super().__init__(location)
        self._key, self._storage, self._size = key, storage, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._storage.size(self._key) is not None

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._key, self._storage)

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream that becomes the file, whole, when it is closed. Names are never used twice."""
        return _Buffer(self)

    def put(self, data: bytes) -> None:
        self._storage.write(self._key, data)
        self._size = len(data)


class _Buffer(BytesIO):
    def __init__(self, file: _Output) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.put(data)
