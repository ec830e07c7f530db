"""What is kept of a key that was forgotten: a receipt for whoever asked, and a list by which a later run knows it.

Both have codes of the keys, HMACs under the settings' `mask_key`, and never the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.paths import folder_name, pipeline_key
from bridge.lake.storage import Storage

NOT_SEARCHED = (
    "logs of runs, which are kept for retention.logs",
    "statistics in the logs of Delta and Iceberg tables about versions that can no longer be read",
    "copies of the bucket, and versions that the store itself keeps",
)
"""For people: places that no verb of ours looks at."""


@dataclass(slots=True)
class Receipt:
    """What was done for some keys of a stream, in one pipeline."""

    pipeline: str
    stream: str
    keys: list[str]
    """Their codes."""
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    searched: int = 0
    """Files that were read."""
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """By stream or view: `rows` that went, and `files` that had them."""
    rejects: int = 0
    staged: list[str] = field(default_factory=list)
    """Half loaded tables that start again, as they had such rows."""
    old_files: int = 0
    """Files of no table any more, which were deleted."""
    commits: list[int] = field(default_factory=list)
    not_searched: list[str] = field(default_factory=lambda: list(NOT_SEARCHED))
    id: str = ""
    """The id of the call, by which the receipt is called."""

    @property
    def file(self) -> str:
        """Its key in the bucket."""
        return pipeline_key(self.pipeline, "forgotten", f"{self.id}.receipt.json")

    def to_json(self) -> dict[str, Any]:
        """The receipt as it is kept, and printed with `--json`."""
        return {"format": 1, **asdict(self), "file": self.file if self.id else None}


def list_key(pipeline: str, stream: str) -> str:
    """The key of the list of a stream's forgotten keys."""
    return pipeline_key(pipeline, "forgotten", f"{folder_name(stream, ())}.json")


def keep(storage: Storage, receipt: Receipt, id_: str) -> None:
    """Add the keys to the stream's list, then write the receipt."""
    receipt.id = id_
    listed = read_list(storage, receipt.pipeline, receipt.stream)
    keys = {**listed.get("keys", {}), **dict.fromkeys(receipt.keys, receipt.at)}
    body = {"format": 1, "stream": receipt.stream, "keys": keys}
    storage.write(list_key(receipt.pipeline, receipt.stream), dumps(body, indent=2))
    storage.write(receipt.file, dumps(receipt.to_json(), indent=2))


def read_list(storage: Storage, pipeline: str, stream: str) -> Mapping[str, Any]:
    """The list of a stream's forgotten keys; empty if there is none that can be read."""
    data = storage.read(list_key(pipeline, stream))
    try:
        listed = loads(data) if data else {}
    except NotJson:
        return {}
    return listed if isinstance(listed, dict) and isinstance(listed.get("keys"), dict) else {}
