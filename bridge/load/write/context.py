"""The facts about the run that a worker needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from bridge.lake.storage import Storage, open_storage
from bridge.load.write.layout import TableLayout

if TYPE_CHECKING:  # workers need no settings
    from bridge.settings.options import Pipeline
    from bridge.settings.values.stores import StoreOptions


@dataclass(frozen=True, slots=True)
class WriteContext:
    """One run, as the workers see it. Pickled to executors."""

    bucket: str
    pipeline: str
    run: str
    generation: int
    spool: str
    """A folder; empty where nothing of a tap is read."""
    compression: str
    layouts: dict[str, TableLayout]
    """By stream. The driver adds streams while the run goes on."""
    store: StoreOptions | None = None
    level: int | None = None
    """Of the compression; None: the codec's own."""
    in_bucket: bool = False
    """Executors find the spool in the bucket, not in its folder; see `bridge.load.write.shared_spool`."""

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        bucket: str,
        run: str,
        generation: int,
        layouts: dict[str, TableLayout],
        spool: str = "",
        *,
        in_bucket: bool = False,
    ) -> WriteContext:
        """Take what the settings say from the pipeline."""
        to = pipeline.destination
        codec, level = to.compression, to.compression_level
        return cls(bucket, pipeline.name, run, generation, spool, codec, layouts, to.store_options, level, in_bucket)

    def storage(self) -> Storage:
        return open_storage(self.bucket, self.store)


class MapOnExecutors(Protocol):
    """Does a piece of work for each payload, here or on executors; the reports come in their order.

    `cost`: how long this process would take for it, in times of a job of Spark.
    """

    def __call__(
        self, work: Callable[[WriteContext, Any], Struct], payloads: Sequence[Any], /, *, cost: float
    ) -> list[Any]:
        """Raise what a report says that failed. From executors the reports come as plain JSON: `convert` reads both."""
