"""The masks of a run: every message of the tap passes here before anything of it is kept.

Whatever cannot be masked is refused, or not kept: keys that would fall together, bookmarks that would show a value, a
line that nobody can read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bridge.errors import DataError, SettingsError
from bridge.protocol.mask.masks import Masks
from bridge.protocol.singer.messages import Noise, Records, Schema, Unsupported
from bridge.protocol.singer.state import bookmark
from bridge.settings.options import Pipeline

_KEEP, _HASH = "keep", "hash"


class Masking:
    """Masks messages as the settings of a pipeline say. `is_narrowed`: only some streams are loaded."""

    def __init__(self, pipeline: Pipeline, *, is_narrowed: bool = False) -> None:
        self._pipeline, self._is_narrowed = pipeline, is_narrowed
        self._masks = Masks(pipeline.mask, pipeline.mask_key or "")
        self._is_on = bool(self._masks)
        self._fields: dict[str, set[str]] = {}

    def _mask_of(self, stream: str, name: str) -> str:
        return self._masks.of(self._pipeline.names_of(stream), name) if self._is_on else _KEEP

    def schema(self, message: Schema) -> Schema:
        """The SCHEMA of the masked records."""
        names = self._pipeline.names_of(message.stream)
        if not self._is_on or not self._masks.are_for(names):
            return message
        schema, self._fields[message.stream] = self._masks.masked_schema(names, message.schema)
        return replace(message, schema=schema)

    def fields(self, stream: str, schema: Any) -> dict[str, str]:
        """The masks of the fields that a stream's JSON Schema declares, by their dotted paths."""
        return self._masks.fields(self._pipeline.names_of(stream), schema) if self._is_on else {}

    def of_table(self, stream: str, keys: Iterable[str]) -> dict[str, str]:
        """How the values of a stream's table are masked, as a commit says it: `TableChange.masks`."""
        if not self._is_on or not self._masks.are_for(self._pipeline.names_of(stream)):
            return {}
        hashed = {name: _HASH for name in keys if self._mask_of(stream, name) == _HASH}
        id_ = str(self._masks.facts["key"])
        return hashed | ({"*": id_} if id_ else {})

    def refuse(self, stream: str, keys: Iterable[str], bookmarks: Iterable[str], sequence: str | None = None) -> None:
        """Raise `SettingsError` for a mask that these keys, bookmarks, or the sequence of a stream cannot have."""
        if sequence is not None and self._mask_of(stream, sequence) != _KEEP:
            hint = f'it orders the versions of a row; write "{stream}.{sequence}": keep'
            raise SettingsError("mask: a sequence cannot be masked", hint=hint, stream=stream, column=sequence)
        for name in keys:
            if (mask := self._mask_of(stream, name)) not in (_KEEP, _HASH):
                hint = f'several rows would have one key; write "{stream}.{name}": hash, or keep'
                raise SettingsError(f"mask: a key cannot be masked by {mask}", hint=hint, stream=stream, key=name)
        for name in bookmarks:
            if self._mask_of(stream, name) != _KEEP:
                hint = f'the STATE shows its values, by which the tap resumes; write "{stream}.{name}": keep'
                raise SettingsError("mask: a replication key cannot be masked", hint=hint, stream=stream, column=name)

    def records(self, message: Records) -> Records:
        """RECORD lines, masked; rows of a file of Arrow become lines."""
        if not self._is_on:
            return message
        names = self._pipeline.names_of(message.stream)
        if not self._masks.are_for(names):
            return message
        data, prefix = bytes(message.data), message.prefix
        if message.arrow:
            from bridge.protocol.decode.arrow.pieces import ArrowPieces  # as late as Arrow itself

            data, prefix = ArrowPieces(data, message.stream).lines(), None
        return replace(message, data=self._masks.lines(names, data, prefix), prefix=prefix, arrow=None)

    def noise(self, message: Noise) -> Noise:
        """A line that is no message: of a pipeline that masks anything, only its length stays."""
        return replace(message, raw=Masks.noise(message.raw)) if self._is_on else message

    def unsupported(self, message: Unsupported) -> Unsupported:
        """A message of another type: of a pipeline that masks anything, not even the type stays."""
        return replace(message, type="that Singer does not have") if self._is_on else message

    def check_state(self, state: Any) -> None:
        """Raise `DataError` for a STATE that shows a value of a masked field."""
        marks = state.get("bookmarks", state) if self._is_on and isinstance(state, dict) else None
        others = set().union(*self._fields.values())
        for stream in marks if isinstance(marks, dict) else ():
            names = self._pipeline.names_of(stream)
            if shown := self._masks.shown_by(names, bookmark(state, names), others):
                keep = f'write "{stream}.{shown}": keep'
                hint = f"nothing was committed with it; {keep}, or choose another replication_method"
                raise DataError("the tap's STATE shows values of a masked field", hint=hint, stream=stream, field=shown)

    def warnings(self) -> list[str]:
        """Warnings about globs and values, for the operator."""
        unmet = [] if self._is_narrowed else self._masks.unmet
        text = "no field of this run met it, so nothing is masked by it; streams and fields have the tap's names"
        globs = [f"mask: {glob}: {text}" for glob in unmet if glob not in self._pipeline.inherited]
        return [*globs, *self._masks.warnings()]
