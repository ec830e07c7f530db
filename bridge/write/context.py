"""What executors are told of a run."""

from __future__ import annotations

from dataclasses import dataclass

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
