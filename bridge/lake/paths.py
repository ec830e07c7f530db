"""Keys in the bucket: a pipeline's own folder, its trash, the folder of a stream's table, the files in it.

A table's folder is readable, safe on every filesystem and in every engine, and reversible.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import uuid
from collections.abc import Collection

# Path separators, Hive's `=`, glob characters, whatever Windows or a URI reads in another way, what no file name can
# hold, and `~`, our own escape.
_UNSAFE = re.compile(r'[/\\%=:?#*"<>|~\x00-\x1f\x7f\ud800-\udfff]|^[._]|[. ]$')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
_LIMIT = 180
_PART = re.compile(r"(?:part-([0-9]{10})-[0-9]{6}-[0-9a-f]{32}\.parquet|spool-([0-9]{10})-[0-9a-f]{32})")
REMOVED = ".removed"
"""The end of the name of each file in the trash."""
PENDING = ".pending"
"""The suffix of a pending file's key, after the name that it will have."""


def pipeline_key(pipeline: str, *parts: str) -> str:
    """A key below the pipeline's own folder, `.bridge/<pipeline>/`."""
    return "/".join((".bridge", pipeline, *parts))


def left_behind(pipeline: str, n: int, folder: str) -> str:
    """The key of the note that commit `n` removed files of a table, which stay in its folder for a while."""
    return f"{trash_of(pipeline, n, folder)}.kept"


def trash_of(pipeline: str, n: int, folder: str) -> str:
    """The key below which commit `n` puts files that it removes from a table's folder."""
    return pipeline_key(pipeline, "trash", f"{n:020d}", folder)


def removed_key(trash: str, name: str) -> str:
    """The key of a removed file there: without Parquet's suffix, as no reader is to take it for a table's."""
    return f"{trash}/{name}{REMOVED}"


def folder_name(stream: str, taken: Collection[str]) -> str:
    """The folder for a new stream. It differs from those `taken` by others even where case is ignored."""
    name = unicodedata.normalize("NFC", stream)
    name = _UNSAFE.sub(
        lambda match: "".join(f"~{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass")), name
    )
    if _RESERVED.match(name):
        name = f"~{ord(name[0]):02X}{name[1:]}"
    if not name:
        name = "~"
    if len(name.encode()) > _LIMIT:
        digest = hashlib.sha256(stream.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        name = name.encode()[:_LIMIT].decode("utf-8", "ignore") + "~" + digest
    lowered, number, unique = {other.casefold() for other in taken}, 2, name
    while unique.casefold() in lowered:
        unique, number = f"{name}_{number}", number + 1
    return unique


def file_name(generation: int, seq: int, beside: str = "") -> str:
    """A name that no file ever had, in the Hive folders of the file `beside` if there are any."""
    folders = "".join(f"{folder}/" for folder in beside.split("/")[:-1])
    return f"{folders}part-{generation:010d}-{seq:06d}-{uuid.uuid4().hex}.parquet"


def spool_name(generation: int) -> str:
    """A name that no file of the spool ever had, for one that lies in the bucket among the pending files."""
    return f"spool-{generation:010d}-{uuid.uuid4().hex}"


def last_name(key: str) -> str:
    """A file's own name in its key, visible or pending, without folders."""
    return key.rpartition("/")[2].removesuffix(PENDING)


def generation_of(key: str) -> int | None:
    """The generation of the run that wrote a file, visible or pending; None for a file that no run of ours wrote."""
    part = _PART.fullmatch(last_name(key))
    return int(part[1] or part[2]) if part else None


def table_and_name(key: str) -> tuple[str, str]:
    """Split a file's key into the table's folder, and the file's name in it, Hive folders included."""
    parts = key.split("/")
    at = len(parts) - 1
    while at > 1 and "=" in parts[at - 1]:  # no table's own folder has that in its name
        at -= 1
    return "/".join(parts[:at]), "/".join(parts[at:])
