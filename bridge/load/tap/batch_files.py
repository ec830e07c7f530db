"""BATCH: the files of a manifest as records, in their order: lines of JSON, or rows as Arrow (`arrow_files.py`).

From here on a BATCH is like RECORDs: the same segments, types, rejects and epochs. A whole file is read when its
message comes, as the tap may delete it afterwards. A file that cannot be read to its end is an error, and no commit has
a row of it. A file of JSON lines holds bare records, as the Singer SDK defines it, or RECORD messages of the stream,
which PipelineWise's definition allows.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import orjson

from bridge.errors import DataError, LakeError
from bridge.lake.storage import open_storage
from bridge.load.tap.arrow_files import arrow_records
from bridge.protocol.singer.messages import LONGEST_LINE, Batch, Reader, Records, parse
from bridge.settings.values.stores import StoreOptions, section_of_bucket

_CHUNK = 1 << 20
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_BOM = b"\xef\xbb\xbf"
_HINT = "nothing of it was committed; look into the file and into the tap's settings for batches, then run again"


@dataclass(frozen=True, slots=True)
class Batches:
    """Reads files: those in buckets as `store` says, or the store's environment.

    `scratch` takes the copy of a file in a bucket while it is read. `tick` runs now and then, and may raise. A line may
    have `longest` bytes. `config`: the tap's; where it says to which place the tap writes, no other file is read.
    """

    scratch: Path | None = None
    store: StoreOptions | None = None
    tick: Callable[[], None] = lambda: None
    longest: int = LONGEST_LINE
    config: Mapping[str, Any] = field(default_factory=dict)

    def records(self, batch: Batch) -> Iterator[Records]:
        """Yield the records, some MiB at once. Raises `DataError` if a file cannot be read to its end."""
        read, rows = self._reader(batch), 0
        for uri in batch.manifest:
            with self._opened(uri, batch.stream) as file, _explained(uri, batch.stream), _unchanged(file):
                for records in read(file):
                    self.tick()
                    rows += records.lines
                    yield records
        if batch.rows is not None and batch.rows != rows:
            reason = f"it has {rows} record(s), and the message's batch_size says {batch.rows}"
            raise _unreadable(", ".join(batch.manifest), batch.stream, reason)

    def _reader(self, batch: Batch) -> Callable[[IO[bytes]], Iterator[Records]]:
        """The function that turns an open file into records."""
        form, packed = (str(batch.encoding.get(key) or "").lower() for key in ("format", "compression"))
        if form in ("arrow", "parquet"):
            return lambda file: arrow_records(batch, file, is_parquet=form == "parquet")
        if form == "jsonl" and packed in ("", "none", *_MAGIC):
            return lambda file: _as_records(batch, _json_lines(file, packed, self.longest))
        hint = "set the tap (the SDK's `batch_config`) to arrow, to parquet, or to jsonl with gzip, zstd or none"
        facts = {"stream": batch.stream, "format": form, "compression": packed}
        raise DataError("a BATCH of an unknown encoding", hint=hint, **facts)

    @contextmanager
    def _opened(self, uri: str, stream: str) -> Iterator[IO[bytes]]:
        scheme = uri.rpartition("://")[0]
        if not self._is_below_root(uri):
            hint = "the tap's batch_config.storage.root says where it writes: correct that, or the tap"
            raise DataError("a file of a BATCH lies outside of the tap's folder", hint=hint, stream=stream, file=uri)
        if section_of_bucket(uri):
            with self._fetched(uri, stream) as file:
                yield file
            return
        if scheme not in ("", "file"):
            hint = "set `storage.root` of the tap's `batch_config` to a file://, s3://, az:// or gs:// place"
            raise DataError("a file of a BATCH is somewhere else", hint=hint, stream=stream, file=uri)
        try:
            file = _path_of(uri).open("rb")
        except (OSError, ValueError) as error:  # a name with NUL
            raise _unreadable(uri, stream, getattr(error, "strerror", None) or str(error)) from error
        with file:
            yield file

    def _is_below_root(self, uri: str) -> bool:
        """False for a file outside of the place that the tap's config names; a relative folder is not looked at."""
        batches = self.config.get("batch_config")
        storage = batches.get("storage") if isinstance(batches, dict) else None
        root = str(storage.get("root") or "") if isinstance(storage, dict) else ""
        if section_of_bucket(root):
            return uri.startswith(f"{root.rstrip('/')}/")
        folder = Path(unquote(root.removeprefix("file://")))
        if not folder.is_absolute():
            return True
        try:
            return not section_of_bucket(uri) and _path_of(uri).resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError):  # a name with NUL: to open it fails, too
            return True

    @contextmanager
    def _fetched(self, uri: str, stream: str) -> Iterator[IO[bytes]]:
        """A copy of an object: it cannot change while it is read, and a broken connection tears nothing."""
        with tempfile.TemporaryFile(dir=self.scratch) as copy:
            for data in self._downloaded(uri, stream):
                self.tick()
                copy.write(data)
            copy.seek(0)
            yield copy

    def _downloaded(self, uri: str, stream: str) -> Iterator[bytes]:
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        try:
            with open_storage(f"{scheme}://{bucket}", self.store).open(key) as source:
                while data := source.read(8 * _CHUNK):
                    yield data
        except LakeError as error:
            raise _unreadable(uri, stream, error.message) from error


def _as_records(batch: Batch, read: Iterator[tuple[bytes, int]]) -> Iterator[Records]:
    """The RECORD lines of a file of bare records, or of RECORD messages: its first line says which."""
    prefix = b'{"type":"RECORD","stream":%s,"record":' % orjson.dumps(batch.stream)
    end = b"}\n" if batch.version is None else b',"version":%d}\n' % batch.version
    if batch.extracted is not None:
        end = b',"time_extracted":%s%s' % (orjson.dumps(batch.extracted), end)
    messages: Reader | None = None
    for number, (lines, count) in enumerate(read):
        if not number and _is_record(lines[: lines.find(b"\n")], batch.stream):
            messages = Reader()
        if messages is None:
            data = prefix + lines.replace(b"\n", end + prefix)
            yield Records(batch.stream, data[: -len(prefix)], count, prefix)
            continue
        for message in messages.feed(lines):
            if not isinstance(message, Records) or message.stream != batch.stream:
                raise ValueError("it has RECORD messages of this stream, and other lines")
            yield message


def _is_record(line: bytes, stream: str) -> bool:
    message = parse(line)
    if message is None or message["type"].upper() != "RECORD":
        return False
    return message.get("stream") == stream and "record" in message


def _path_of(uri: str) -> Path:
    """The file that a URI or a path names."""
    scheme, _, rest = uri.rpartition("://")
    return _local(rest.removeprefix("localhost/")) if scheme else _plain_path(uri)


def _local(path: str) -> Path:
    """The file of a URI; some taps do not percent-encode the path."""
    decoded = Path(unquote(path))
    return decoded if decoded.exists() or not Path(path).exists() else Path(path)


def _plain_path(path: str) -> Path:
    """The file of a path without a scheme, which some taps percent-encode."""
    return Path(path) if Path(path).exists() else _local(path)


@contextmanager
def _unchanged(file: IO[bytes]) -> Iterator[None]:
    """Raise `ValueError` if the file is another one after it was read than before."""
    descriptor = os.dup(file.fileno())  # readers may close the file
    try:
        before = os.fstat(descriptor)
        yield
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ValueError("it changed while it was read")


@contextmanager
def _explained(uri: str, stream: str) -> Iterator[None]:
    from pyarrow import ArrowException

    kinds = (OSError, EOFError, zlib.error, ValueError, ArithmeticError, MemoryError, ArrowException)  # of any library
    try:
        yield
    except kinds as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _unreadable(uri, stream, reason) from error


def _unreadable(uri: str, stream: str, reason: str) -> DataError:
    return DataError(f"a file of a BATCH cannot be read: {reason}", hint=_HINT, stream=stream, file=uri)


def _json_lines(file: IO[bytes], declared: str, longest: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a JSON lines file. Undeclared compression is undone, too: no JSON begins with its bytes."""
    start = file.read(4)
    file.seek(0)
    actual = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), "none")
    if declared in _MAGIC and actual != declared:
        raise ValueError(f"it is not compressed with {declared}, as the BATCH says")
    with _plain(file, actual) as text:
        if text.peek(3)[:3] == _BOM:
            text.read(3)
        parts, begun = list[bytes](), 0
        while data := text.read(_CHUNK):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield from _counted(b"".join((*parts, data[:cut])))
                parts, begun = [], 0
            parts.append(data[cut:])
            begun += len(data) - cut
            if begun > longest:
                raise ValueError(f"a line has more than {longest} bytes")
    if begun:
        yield from _counted(b"".join((*parts, b"\n")))


def _plain(file: IO[bytes], compression: str) -> Any:
    """The file without its compression, buffered."""
    import io

    if compression == "gzip":
        return io.BufferedReader(gzip.GzipFile(fileobj=file), _CHUNK)
    if compression == "zstd":
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"), _CHUNK)
    return file


def _counted(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Lines and their number, without blank ones, which are no records."""
    lines = data.count(b"\n")
    if data.count(b"\n{") + data.startswith(b"{") < lines:
        records = [line for line in data.split(b"\n") if line.strip()]
        data, lines = b"".join(line + b"\n" for line in records), len(records)
    if lines:
        yield data, lines
