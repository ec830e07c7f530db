"""A table as a Singer stream: what its commits changed since the bookmark, or the whole table where that is not known.

The rows of a whole table have a new `version`, which ACTIVATE_VERSION makes the only one once all of them are sent. A
STATE follows each few thousand rows, so that after any crash the tap goes on behind the rows that a target has.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from singer_sdk import Stream, singerlib
from singer_sdk.mapper import SameRecordTransform

from bridge.errors import SettingsError
from bridge.exact_json import loads
from bridge.protocol.schema.declared import object_schema
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP
from bridge.read.query.changes.feed import ChangeFeed
from tap_bridge.batches import BatchFiles
from tap_bridge.bookmark import Bookmark
from tap_bridge.progress import Activate, Progress
from tap_bridge.sending import Chunk, until_the_target_ends, write_message, write_records
from tap_bridge.settings import keys_of, threads_of

if TYPE_CHECKING:
    from tap_bridge.tap import TapBridge


class TableStream(Stream):
    """One table or view."""

    def __init__(self, tap: TapBridge, feed: ChangeFeed, name: str) -> None:
        self._feed = feed
        own, declared = keys_of(tap.config, name), feed.keys(name)
        self._is_key_open = own is None and declared is None
        keys = own if own is not None else declared or []
        super().__init__(tap, schema=_schema(list(feed.columns(name)), keys), name=name)
        self.primary_keys = keys

    @property
    def replication_method(self) -> str:
        """The catalog's method, `FULL_TABLE` or `LOG_BASED`. Discovery forces neither, so that a user may choose."""
        return self.forced_replication_method or "LOG_BASED"

    def apply_catalog(self, catalog: singerlib.Catalog) -> None:
        """Take the selection and the key from the catalog, but columns from the lake: it may have more by now."""
        super().apply_catalog(catalog)
        self._input_schema, self._is_key_open = None, self._is_key_open and not self.primary_keys
        self._schema = _schema(list(self._feed.columns(self.name)), self.primary_keys)

    def get_batch_config(self, config: Any) -> None:
        """None: the SDK's own batches would take the records one by one."""

    def get_records(self, context: Any) -> Iterator[dict[str, Any]]:
        """Yield the records that are due since the bookmark."""
        for event in self._progress().events():
            if isinstance(event, Chunk):
                yield from _records(event)

    def _progress(self, *, as_text: bool = True) -> Progress:
        bookmark = Bookmark.read(self.stream_state)
        keys, threads, most = tuple(self.primary_keys), threads_of(self.config), int(self.config["state_every"])
        progress = Progress(self._feed, self.name, self._fields(), keys, threads, most, self.logger, as_text, bookmark)
        if self.replication_method == "FULL_TABLE" and bookmark and bookmark.complete:
            progress.begin()
        return progress

    def _fields(self) -> list[pa.Field]:
        """The selected columns. Raises `SettingsError` if the key is not among them."""
        fields = _selected(list(self._feed.columns(self.name)), self.mask, ())
        if missing := set(self.primary_keys) - {field.name for field in fields}:
            hint = "correct key_properties, or select these columns"
            raise SettingsError("a key column is not sent", hint=hint, stream=self.name, columns=sorted(missing))
        return fields

    def _generate_schema_messages(self) -> Generator[singerlib.SchemaMessage, None, None]:
        self._settle_key()
        schema = _schema(self._fields(), self.primary_keys)
        if self._is_mapped():
            self._tap.mapper.register_raw_stream_schema(self.name, schema, self.primary_keys)
            self._stream_maps = None
            yield from super()._generate_schema_messages()
        else:
            yield singerlib.SchemaMessage(self.name, schema, self.primary_keys)

    def _settle_key(self) -> None:
        """Where an older version loaded the table and did not note its key, the key stays what it was."""
        bookmark = Bookmark.read(self.stream_state)
        if self._is_key_open and bookmark:
            self.primary_keys = list(bookmark.keys)

    def _is_mapped(self) -> bool:
        plain = all(isinstance(one, SameRecordTransform) and not one.flattening_enabled for one in self.stream_maps)
        return not plain

    def _sync_records(self, context: Any = None, *, write_messages: bool = True) -> Generator[dict[str, Any], Any, Any]:
        """Send what is due: as files, as whole blocks of lines, or record by record where each of them is looked at."""
        one_by_one = self._is_mapped() or self.ABORT_AT_RECORD_COUNT is not None
        files = None if one_by_one else BatchFiles.of(self.config)
        progress, index, sent = self._progress(as_text=files is None), 0, -1  # a STATE first says where it began
        with until_the_target_ends(self.logger), self.get_record_counter() as counter, self.get_sync_timer():
            for event in progress.events():
                is_due = sent < 0 or sent >= self.config["state_every"]
                if is_due or isinstance(event, Activate) or (files and not files.takes(event.rows, progress.version)):
                    self._write_file(files)
                if is_due:
                    sent = 0
                    self._store(progress)
                if isinstance(event, Activate):
                    self._write_activate_version_message(event.version)
                    continue
                self._warn_of_nulls(event)
                self._stream_version = progress.version
                if files:
                    files.add(event.rows, progress.version)
                elif not one_by_one:
                    write_records(self.name, progress.version, event.objects)
                for record in _records(event) if one_by_one else ():
                    self._check_max_record_limit(current_record_index=index)
                    self._write_record_message(record)
                    index += 1
                    yield record
                counter.increment(event.rows.num_rows)
                sent += event.rows.num_rows
            self._write_file(files)
        self._store(progress)

    def _write_file(self, files: BatchFiles | None) -> None:
        """Write a BATCH of the rows that wait, if any do."""
        if files and (message := files.message(self.name)):
            write_message(message)

    def _store(self, progress: Progress) -> None:
        """Write a STATE with the bookmark behind all that was written."""
        state = self.stream_state
        state.clear()
        state.update(progress.bookmark.stored() if progress.bookmark else {})
        self._tap.state_writer.write_state(self.tap_state)

    def _warn_of_nulls(self, chunk: Chunk) -> None:
        for column in chunk.not_finite:
            self.logger.warning("%s: JSON has no NaN and no infinity, so they are null in %s", self.name, column)


def _records(chunk: Chunk) -> Iterator[dict[str, Any]]:
    assert chunk.objects is not None
    yield from map(loads, chunk.objects.to_pylist())


def _selected(fields: Sequence[pa.Field], mask: Any, above: tuple[str, ...]) -> list[pa.Field]:
    """The fields that a catalog selects, those inside objects too."""
    result = []
    for field in fields:
        breadcrumb = (*above, "properties", field.name)
        if not mask[breadcrumb]:
            continue
        if pa.types.is_struct(field.type):
            inner = _selected(list(field.type), mask, breadcrumb)
            if not inner:
                continue
            field = field.with_type(pa.struct(inner))  # noqa: PLW2901 - the same field, with less in it
        result.append(field)
    return result


def _schema(fields: list[pa.Field], keys: Sequence[str]) -> dict[str, Any]:
    """The SCHEMA: of a table with a key it has the column that says that a row was deleted."""
    names = {field.name for field in fields}
    deleted = [pa.field(DELETED_AT, TIMESTAMP)] if keys and DELETED_AT not in names else []
    return object_schema([*fields, *deleted])
