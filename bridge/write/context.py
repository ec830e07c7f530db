"""What executors are told of a run, and how they say what failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError, DataError, EngineError, LakeError
from bridge.settings.values.s3options import S3Options
from bridge.storage import Storage, open_storage
from bridge.write.layout import Target


@dataclass(frozen=True, slots=True)
class Job:
    """What an executor needs to know of the run."""

    bucket: str
    pipeline: str
    run: str
    generation: int
    spool: str
    compression: str
    targets: dict[str, Target]
    """The tables by stream. They grow while the run goes on."""
    s3: S3Options | None = None
    level: int | None = None
    """Of the compression; None: the codec's own."""

    def storage(self) -> Storage:
        """Open the bucket."""
        return open_storage(self.bucket, self.s3)


_KINDS: dict[str, type[BridgeError]] = {kind.__name__: kind for kind in (DataError, EngineError, LakeError)}


def failure(error: BridgeError) -> dict[str, Any]:
    """Turn an error into a report: retrying what an operator must mend would only cost time."""
    return {"failed": {"type": type(error).__name__, "message": error.message, "hint": error.hint}}


def raise_failure(report: dict[str, Any]) -> None:
    """Raise again, on the driver, the error that an executor reported."""
    if failed := report.get("failed"):
        raise _KINDS.get(failed["type"], EngineError)(failed["message"], hint=failed["hint"])
