"""Spark for a verb that is no run: started by the first work that needs it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bridge.load.write.context import WriteContext
from bridge.settings.options import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.load.spark.session import Session

Result = TypeVar("Result")


class InSpark(Protocol):
    """Does work in a Spark session, which it starts if there is none yet; see `Engine.in_spark`."""

    def __call__(self, work: Callable[[Any, WriteContext, str | None], Result], /) -> Result:
        """Return what the work returns."""


class SparkAtNeed:
    """Spark for a verb that is no run; the first work starts it as the pipeline's settings say. Scratch: `folder`."""

    def __init__(self, pipeline: Pipeline, folder: Path, context: WriteContext) -> None:
        self._spark, self._folder, self._context = pipeline.spark, folder, context
        self._session: Session | None = None

    def __enter__(self) -> SparkAtNeed:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if self._session:
            self._session.close(hurry=failed is not None)

    def in_spark(self, work: Callable[[SparkSession, WriteContext, str | None], Result]) -> Result:
        """Do the work in Spark, as `Engine.in_spark` does."""
        if self._session is None:
            from bridge.load.spark.session import Session  # imports pyspark

            self._folder.mkdir(parents=True, exist_ok=True)
            self._session = Session(self._spark.master, self._spark.conf, self._folder, self._folder / "spark.log")
        return work(self._session.spark, self._context, self._session.shipped)


@contextmanager
def spark_at_need(pipeline: Pipeline, context: WriteContext) -> Iterator[InSpark]:
    """Yield what does work in a session of its own, which the first work starts; see `Engine.in_spark`."""
    with (
        tempfile.TemporaryDirectory(prefix="singer-bridge-") as scratch,
        SparkAtNeed(pipeline, Path(scratch) / "spark", context) as spark,
    ):
        yield spark.in_spark
