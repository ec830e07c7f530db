"""The pipelines that the page shows: those of bridge.yaml, and whatever else their buckets hold."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import BridgeError, SettingsError
from bridge.lake.log import Log
from bridge.lake.presence import pipelines_in
from bridge.lake.storage import Storage, lake_of
from bridge.load.tap.catalog_store import with_names
from bridge.load.tap.source import home_folder
from bridge.serve.service.bucket_pool import BucketPool
from bridge.settings.inline import inline_pipeline
from bridge.settings.load import Settings, SettingsFile, read_settings
from bridge.settings.options import Pipeline
from bridge.settings.values.stores import StoreOptions

_Place = tuple[str, str, str]
"""See `Destination.place`."""
_LOOK_AGAIN = 30.0
"""Seconds. A listing of buckets may be so old."""
_PATIENCE, _LONGEST = 0.25, 5.0
"""Seconds that a page waits for a new listing; and one of a pipeline that nobody has heard of."""


@dataclass(frozen=True, slots=True)
class ListedPipeline:
    """A pipeline of the page. `key` is its name in the file, by which a run is started."""

    key: str
    home: Path
    pipeline: Pipeline | None = None
    log: Log | None = field(default=None, repr=False)
    error: SettingsError | None = None
    """Why its settings cannot be read. It has no `pipeline` then."""
    problem: SettingsError | None = None
    """Why its runs still go by the settings from before, or cannot start: something in its source is wrong."""
    in_file: bool = True
    """False: only its bucket has it, such as one that Meltano runs. It cannot be started from here."""

    @property
    def with_names(self) -> Pipeline:
        """The pipeline that knows all names of its streams. Raises `SettingsError` if its settings are wrong."""
        return with_names(self.settings, self.home)

    @property
    def settings(self) -> Pipeline:
        """Its settings, without its source. Raises `SettingsError` if they are wrong."""
        if self.pipeline is None:
            raise self.error or SettingsError("this pipeline has no settings", hint="see bridge.yaml")
        return self.pipeline

    @property
    def lake(self) -> Log:
        """Its commit log. Raises `SettingsError` if its settings are wrong."""
        if self.log is None:
            raise self.error or SettingsError("this pipeline has no bucket", hint="see bridge.yaml")
        return self.log

    def whole(self, file: Path, environment: str | None) -> Pipeline:
        """Its settings with its source, read now. Raises `SettingsError`."""
        return read_settings(file, environment).pipeline(self.key) if self.in_file else self.settings


class ServedPipelines:
    """Follows the file. A file that is wrong is `problem`; the pipelines stay what they were. Threads may share it."""

    def __init__(self, file: Path, environment: str | None) -> None:
        """Nothing is read yet."""
        self.file, self.environment = file.absolute(), environment
        self.problem: SettingsError | None = None
        self._lock = threading.Lock()
        self._settings = SettingsFile(file, environment)
        self._of_file: dict[str, ListedPipeline] = {}
        self._of_buckets: dict[str, ListedPipeline] = {}
        self._names: dict[_Place, list[str]] = {}
        """The pipelines of each bucket, as far as it was listed."""
        self._listed = float("-inf")
        self._listings: list[Future[None]] = []
        self._listers = BucketPool("listing", 1)
        self._storages: dict[tuple[str, StoreOptions | None], Storage] = {}

    def all(self) -> dict[str, ListedPipeline]:
        """The pipelines by key, those of the file first."""
        with self._lock:
            if self._settings.has_changed():
                self._read()
            if time.monotonic() - self._listed > _LOOK_AGAIN:
                self._listed = time.monotonic()
                self._listings = [
                    self._listers.submit(self._list, place, shown.lake.storage, bucket=repr(place), key=repr(place))
                    for place, shown in self._buckets().items()
                ]
            listings, left = self._listings, self._listed + _PATIENCE - time.monotonic()
        wait(listings, max(0.0, left))
        with self._lock:
            return self._of_file | self._of_buckets

    def get(self, key: str) -> ListedPipeline | None:
        """The pipeline with this name, in the file or in the bucket; None if there is none."""
        result = self._named(key)
        if result is None:  # its bucket may not have been listed yet
            wait(self._listings, _LONGEST)
            result = self._named(key)
        return result

    def _named(self, key: str) -> ListedPipeline | None:
        every = self.all()
        return every.get(key) or next((s for s in every.values() if s.pipeline and s.pipeline.name == key), None)

    def _read(self) -> None:
        try:
            settings = self._settings.read()
            self._of_file = {name: self._shown(settings, name) for name in settings.pipelines}
            self._of_buckets = dict(self._others())
            self.problem = None
        except SettingsError as error:
            self.problem = error
        self._listed = float("-inf")

    def _shown(self, settings: Settings, name: str) -> ListedPipeline:
        home = home_folder(self.file)
        try:
            pipeline = settings.pipeline(name, source=False)
            problem = _problem(settings, name)
            return ListedPipeline(name, home, pipeline, Log(self._storage(pipeline), pipeline.name), problem=problem)
        except SettingsError as error:
            return ListedPipeline(name, home, error=error)

    def _storage(self, pipeline: Pipeline) -> Storage:
        """The bucket's storage. Pipelines of one bucket share it: what it costs to open is paid once."""
        key = (pipeline.destination.bucket, pipeline.destination.store_options)
        if key not in self._storages:
            self._storages[key] = lake_of(pipeline.destination)
        return self._storages[key]

    def _buckets(self) -> dict[_Place, ListedPipeline]:
        """The buckets, each with a pipeline that the file has there."""
        buckets = dict[_Place, ListedPipeline]()
        for shown in self._of_file.values():
            if shown.pipeline and shown.log:
                buckets.setdefault(shown.pipeline.destination.place, shown)
        return buckets

    def _list(self, place: _Place, storage: Storage) -> None:
        """Look what a bucket has. As long as it does not answer, it is what was there before."""
        with suppress(BridgeError):  # its pipelines of the file say so
            names = pipelines_in(storage)
            with self._lock:
                if names != self._names.get(place):
                    self._names[place] = names
                    self._of_buckets = dict(self._others())

    def _others(self) -> Iterator[tuple[str, ListedPipeline]]:
        """The pipelines that only the buckets have. One of the file with the same name hides another bucket's."""
        names = {each.pipeline.name for each in self._of_file.values() if each.pipeline} | self._of_file.keys()
        for place, shown in self._buckets().items():
            for name in self._names.get(place, ()):
                if name not in names:
                    names.add(name)
                    yield name, self._of_bucket(name, shown.lake.storage, shown.settings.destination.bucket, shown)

    def _of_bucket(self, name: str, storage: Storage, bucket: str, sibling: ListedPipeline) -> ListedPipeline:
        try:
            pipeline = inline_pipeline(name=name, bucket=bucket, environ=dict(os.environ))
        except SettingsError as error:
            return ListedPipeline(name, sibling.home, error=error, in_file=False)
        own = sibling.settings.destination
        store = {"s3": own.s3, "azure": own.azure, "gcs": own.gcs}
        destination = pipeline.destination.model_copy(update=store)
        pipeline = pipeline.model_copy(update={"destination": destination})
        return ListedPipeline(name, sibling.home, pipeline, Log(storage, name), in_file=False)


def _problem(settings: Settings, name: str) -> SettingsError | None:
    """The problem of a pipeline whose bucket, at least, is known."""
    try:
        settings.pipeline(name)
    except SettingsError as error:
        return error
    return None
