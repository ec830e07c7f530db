"""A session for a verb that is no run and rarely needs Spark: the first work starts it, the verb's end closes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bridge.settings.options import Pipeline
from bridge.write.context import WriteContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.spark.session import Session

Result = TypeVar("Result")


class SparkAtNeed:
    """Spark as the pipeline's settings have it, with `folder` for its scratch files."""

    def __init__(self, pipeline: Pipeline, folder: Path, context: WriteContext) -> None:
        self._spark, self._folder, self._context = pipeline.spark, folder, context
        self._session: Session | None = None

    def __enter__(self) -> SparkAtNeed:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._session:
            self._session.close(hurry=failed is not None)

    def in_spark(self, work: Callable[[SparkSession, WriteContext, str | None], Result]) -> Result:
        """As `Engine.in_spark`."""
        if self._session is None:
            from bridge.spark.session import Session  # imports pyspark

            self._folder.mkdir(parents=True, exist_ok=True)
            self._session = Session(self._spark.master, self._spark.conf, self._folder, self._folder / "spark.log")
        return work(self._session.spark, self._context, self._session.shipped)
