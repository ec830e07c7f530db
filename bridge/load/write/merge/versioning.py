"""How a table that keeps versions tells them apart: from when on one is, and which changes make one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from bridge.errors import SettingsError, did_you_mean
from bridge.protocol.schema.json_schema import EXTRA, TIMESTAMP, VersionColumn, is_json, source

if TYPE_CHECKING:  # workers need no settings
    from bridge.settings.destination import StreamKeys


def last_match(globs: Sequence[str], name: str) -> str | None:
    """The last of the globs that a name matches; `!` before one leaves out."""
    return next((glob for glob in reversed(globs) if fnmatchcase(name, glob.removeprefix("!"))), None)


@dataclass(frozen=True, slots=True)
class Versioning:
    """How versions of a stream's rows are told apart. Pickled to executors."""

    stream: str
    sequence: str | None = None
    """The property whose values are the starts of versions; None: the time of the commit."""
    track: tuple[str, ...] = ()
    """Globs of the properties whose changes make a version; empty: all."""
    ignore: tuple[str, ...] = ()
    """Globs of those whose changes do not."""
    corrects: bool = False
    """Rows are those of now, also where their sequence is earlier: they change the version that is current."""

    @classmethod
    def of(cls, stream: str, keys: StreamKeys, *, is_on: bool) -> Versioning | None:
        """Take what the settings say of a stream. Raises `SettingsError` for what means nothing."""
        if is_on and keys.hard_delete:
            hint = "remove hard_delete: a deletion ends a version; `singer-bridge forget` removes all versions of a key"
            raise SettingsError("a history table removes no row", hint=hint, stream=stream)
        if is_on:
            return cls(stream, keys.sequence, tuple(keys.track or ()), tuple(keys.ignore or ()))
        if given := [name for name in ("sequence", "track", "ignore") if getattr(keys, name)]:
            hint = f"set load_method: history for it, or remove {given[0]}"
            raise SettingsError(f"{given[0]} is for history tables", hint=hint, stream=stream)
        return None

    def tracks(self, name: str) -> bool:
        """Whether a change of a property makes a version. One of the sequence does only if `track` has its name."""
        if name == self.sequence:
            return name in self.track
        if name.startswith("_sdc_") and name != EXTRA:
            return False
        tracked, ignored = last_match(self.track, name), last_match(self.ignore, name)
        is_tracked = not tracked.startswith("!") if tracked else all(glob.startswith("!") for glob in self.track)
        return is_tracked and (ignored is None or ignored.startswith("!"))

    def columns(self, stream: pa.Schema, start: pa.DataType | None = None) -> pa.Schema:
        """The stream's columns, and those of its versions. `start` is the type of starts so far in this run.

        Raises `SettingsError` for a sequence without an order, and for what is tracked and not there.
        """
        own = [field for field in stream if not VersionColumn.has(field)]
        self.refuse_own(own)
        names = [source(field) for field in own]
        for glob in self.track:
            if not any(fnmatchcase(name, glob.removeprefix("!")) for name in names):
                hint = did_you_mean(glob, names) or f"its columns are: {', '.join(names[:20])}"
                raise SettingsError("track names no column", hint=hint, stream=self.stream, track=glob)
        type_ = TIMESTAMP if self.sequence is None else self.sequence_field(stream).type
        before = [field.type for field in stream if VersionColumn.has(field) and field.name == VersionColumn.START]
        if type_ == pa.string() and any(one not in (None, pa.string()) for one in (*before, start)):
            hint = f"give it its type in the tap's settings or catalog; or begin anew: {self._anew}"
            raise SettingsError("the sequence became text, which has another order", hint=hint, stream=self.stream)
        return pa.schema([*own, *VersionColumn.fields(type_, self.sequence)])

    def refuse_own(self, columns: Iterable[pa.Field]) -> None:
        """Raise `SettingsError` if the stream has a column with the name of one of ours."""
        reserved = {field.name.casefold() for field in VersionColumn.fields(TIMESTAMP)}
        if taken := [field.name for field in columns if field.name.casefold() in reserved]:
            hint = f"rename it: {{rename: {{{taken[0]}: another_name}}}} under streams; or set another load_method"
            what = "the tap sends a column with a name that history tables need"
            raise SettingsError(what, hint=hint, stream=self.stream, column=taken[0])

    def refuse_other(self, table: pa.Schema) -> None:
        """Raise `SettingsError` for a table with rows whose versions begin with another property."""
        (start,) = (field for field in table if VersionColumn.has(field) and field.name == VersionColumn.START)
        before = (start.metadata or {}).get(b"sequence", b"").decode()
        if before != (self.sequence or ""):
            was = f"keep sequence: {before}" if before else "remove sequence"
            hint = f"{was}; or begin the history anew: {self._anew}"
            raise SettingsError("a history table keeps its sequence", hint=hint, stream=self.stream)

    @property
    def _anew(self) -> str:
        return f"--full -s {shlex.quote(self.stream)}"

    def sequence_field(self, columns: pa.Schema) -> pa.Field:
        """The column of the sequence. Raises `SettingsError` if there is none that has an order."""
        name = self.sequence or ""
        fields = [field for field in columns if source(field) == name]
        if not fields:
            renamed = [source(field) for field in columns if field.name == name]
            hint = (
                f"write it as the tap calls it: {renamed[0]}" if renamed else did_you_mean(name, map(source, columns))
            )
            hint = hint or "name a column of the stream, or leave sequence out"
            facts = {"stream": self.stream, "sequence": name}
            raise SettingsError("the sequence is not a column of the table", hint=hint, **facts)
        if len(fields) > 1 or pa.types.is_nested(fields[0].type) or is_json(fields[0]):
            hint = "name a time or a number; or leave it out, and versions begin with the commit that brings them"
            facts = {"stream": self.stream, "sequence": name}
            raise SettingsError("a sequence needs one value in each row", hint=hint, **facts)
        return fields[0]
