"""The receipt for whoever asked that keys are forgotten. It has codes of the keys, and never the keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from bridge.exact_json import dumps
from bridge.lake.storage import Storage
from bridge.load.run.checks.forgotten import receipt_key, remember

NOT_SEARCHED = (
    "logs of runs, which are kept for retention.logs",
    "statistics in the logs of Delta and Iceberg tables about versions that can no longer be read",
    "values of partitions, which are in the names of folders and in commit records",
    "copies of the bucket, and versions that the store itself keeps",
)
"""For people: places that no verb of ours looks at."""


@dataclass(slots=True)
class Receipt:
    """The work that was done for some keys of a stream, in one pipeline."""

    pipeline: str
    stream: str
    keys: list[str]
    """Their codes."""
    at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    streams: list[str] = field(default_factory=list)
    """The tables that were searched."""
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
        return receipt_key(self.pipeline, self.id)

    def to_json(self) -> dict[str, Any]:
        """The receipt as it is kept, and printed with `--json`."""
        return {"format": 1, **asdict(self), "file": self.file if self.id else None}


def keep(storage: Storage, receipt: Receipt, id_: str) -> None:
    """Add the keys to those that a run looks for, then write the receipt."""
    receipt.id = id_
    remember(storage, receipt.pipeline, receipt.stream, receipt.keys, receipt.at)
    storage.write(receipt.file, dumps(receipt.to_json(), indent=2))
