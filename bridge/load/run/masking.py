"""The masks of a run: every message of the tap passes here before anything of it is kept.

Whatever cannot be masked is refused, or not kept: keys that would fall together, bookmarks that would show a value, a
line that nobody can read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from bridge.errors import DataError, SettingsError
from bridge.protocol.mask.masks import Masks
from bridge.protocol.singer.messages import Noise, Records, Schema
from bridge.protocol.singer.state import bookmark
from bridge.settings.commands import full_run
from bridge.settings.options import Pipeline

_KEEP, _HASH = "keep", "hash"


class Masking:
    """Masks messages as the settings of a pipeline say.

    `is_new_key`: the bucket's tables were hashed with another `mask_key`.
    """

    def __init__(self, pipeline: Pipeline, *, is_new_key: bool = False) -> None:
        self._pipeline, self._is_new_key = pipeline, is_new_key
        self._masks = Masks(pipeline.mask, pipeline.mask_key or "")
        self._fields: dict[str, Collection[str]] = {}
        self._warnings: dict[str, None] = {}

    def _mask_of(self, stream: str, name: str) -> str:
        return self._masks.of(self._pipeline.names_of(stream), name) if self._masks else _KEEP

    def schema(self, message: Schema) -> Schema:
        """The SCHEMA of the masked records."""
        names = self._pipeline.names_of(message.stream)
        if not self._masks or not self._masks.are_for(names):
            return message
        properties = message.schema.get("properties")
        fields = list(properties) if isinstance(properties, dict) else []
        self._fields[message.stream] = {name for name in fields if self._masks.of(names, name) != _KEEP}
        for glob in self._masks.unmet(names, fields):
            self._warnings[f"mask: {glob} is no field of the stream's SCHEMA, so nothing of that name is masked"] = None
        return replace(message, schema=self._masks.schema(names, message.schema))

    def refuse(self, stream: str, keys: Iterable[str], bookmarks: Iterable[str]) -> None:
        """Raise `SettingsError` for a mask that these keys or bookmarks of a stream cannot have."""
        for name in keys:
            if (mask := self._mask_of(stream, name)) not in (_KEEP, _HASH):
                hint = f'several rows would have one key; write "{stream}.{name}": hash, or keep'
                raise SettingsError(f"mask: a key cannot be masked by {mask}", hint=hint, stream=stream, key=name)
        for name in bookmarks:
            if self._mask_of(stream, name) != _KEEP:
                hint = f'the STATE shows its values, by which the tap resumes; write "{stream}.{name}": keep'
                raise SettingsError("mask: a replication key cannot be masked", hint=hint, stream=stream, column=name)

    def refuse_new_key(self, stream: str, keys: Iterable[str]) -> None:
        """Raise `SettingsError` where rows would not be found by these keys, as they were hashed with another key."""
        if self._is_new_key and any(self._mask_of(stream, name) == _HASH for name in keys):
            hint = f"set the old one again; or have all hashed anew: {full_run(self._pipeline.name)}"
            what = "mask_key is another one, and rows are merged by keys that the old one hashed"
            raise SettingsError(what, hint=hint, stream=stream)

    def records(self, message: Records) -> Records:
        """RECORD lines, masked; rows of a file of Arrow become lines."""
        names = self._pipeline.names_of(message.stream)
        if not self._masks or not self._masks.are_for(names):
            return message
        data, prefix = bytes(message.data), message.prefix
        if message.arrow:
            from bridge.protocol.decode.arrow.pieces import ArrowPieces  # as late as Arrow itself

            data, prefix = ArrowPieces(data, message.stream).lines(), None
        return replace(message, data=self._masks.lines(names, data, prefix), prefix=prefix, arrow=None)

    def noise(self, message: Noise) -> Noise:
        """A line that is no message: of a pipeline that masks anything, only its length stays."""
        return replace(message, raw=Masks.noise(message.raw)) if self._masks else message

    def check_state(self, state: Any) -> None:
        """Raise `DataError` for a STATE that shows a value of a masked field."""
        for stream, fields in self._fields.items():
            if shown := Masks.shown_by(bookmark(state, self._pipeline.names_of(stream)), fields):
                keep = f'write "{stream}.{shown}": keep'
                hint = f"nothing was committed with it; {keep}, or choose another replication_method"
                raise DataError("the tap's STATE shows values of a masked field", hint=hint, stream=stream, field=shown)

    def warnings(self) -> list[str]:
        """Warnings about globs and values, for the operator."""
        return [*self._warnings, *self._masks.warnings()]
