"""Every setting with its type, default and meaning: the one table that reading, `--about` and the README share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COUNT = {"type": "integer", "minimum": 0}
NUMBER = {"type": "integer", "minimum": 1}
FLAG = {"type": "boolean"}
TEXT = {"type": "string", "minLength": 1}
METHODS = ("INCREMENTAL", "FULL_TABLE")
STYLES = ("compact", "spaced", "raw", "shuffled")
FAILURES = ("exit", "signal", "term", "hang", "half_line", "half_line_ok")


class TapError(Exception):
    """The user has to change the config, the catalog or the state; the message says which and how."""


def _setting(default: Any, kind: dict[str, Any], doc: str) -> Any:
    """A field with its JSON Schema; a default of None also allows null."""
    return field(default=default, metadata={"kind": kind, "doc": doc})


def _nested(of: type, doc: str, *, many: bool = False) -> dict[str, Any]:
    """Field metadata of a setting that is an object, or a list of objects, with settings of its own."""
    return {"of": of, "many": many, "doc": doc}


@dataclass(frozen=True)
class SchemaChange:
    """One change of a stream's schema; records from `at` on are as the new schema says."""

    at: int = _setting(1, NUMBER, "the first record number under the new SCHEMA")
    add: str | None = _setting(None, TEXT, "name of an integer column that appears")
    retype: str | None = _setting(None, TEXT, "name of a column whose type changes")
    to: str = _setting("string", {"enum": ["string", "number"]}, "the new type of `retype`")


@dataclass(frozen=True)
class StreamSettings:
    """One stream; its records are numbered 1 to `records`."""

    name: str = _setting("numbers", TEXT, "name of the stream")
    records: int = _setting(0, COUNT, "number of the last record")
    replication_method: str = _setting("INCREMENTAL", {"enum": list(METHODS)}, "what a second run sends")
    key_properties: tuple[str, ...] | None = _setting(
        ("id",), {"type": "array", "items": {"type": "string"}}, "the key; null leaves it out of the SCHEMA"
    )
    wide: int = _setting(0, COUNT, "bytes of an extra `payload` column in each record")
    inclusive: bool = _setting(False, FLAG, "resume with >= (the record at the bookmark is sent again), not >")
    announce_bookmark: bool = _setting(True, FLAG, "the SCHEMA of an INCREMENTAL stream has bookmark_properties")
    version: int | None = _setting(None, COUNT, "RECORDs carry it, ACTIVATE_VERSION follows the records")
    activate_first: bool = _setting(False, FLAG, "an ACTIVATE_VERSION also precedes the SCHEMA")
    resumable: bool = _setting(False, FLAG, "versioned FULL_TABLE that continues where it was cut")
    progress_markers: bool = _setting(False, FLAG, "INCREMENTAL as an unsorted SDK stream: not resumable until its end")
    types: bool = _setting(False, FLAG, "one more column of each type")
    schema_change: SchemaChange | None = field(
        default=None, metadata=_nested(SchemaChange, "a new SCHEMA in the middle")
    )
    extra_field: int | None = _setting(None, NUMBER, "this record has a field that the schema lacks")
    bad_value: int | None = _setting(None, NUMBER, "this record has text in the integer column `n`")


@dataclass(frozen=True)
class StateSettings:
    """When STATE is written, and in which form."""

    every: int = _setting(1000, NUMBER, "records of a stream between two STATEs; 1 is one after each")
    at_end: bool = _setting(True, FLAG, "a STATE after each stream's end")
    never: bool = _setting(False, FLAG, "no STATE at all")
    flat: bool = _setting(False, FLAG, '{"stream": n} in place of bookmarks')
    currently_syncing: bool = _setting(False, FLAG, "the STATE names the stream under way; a STATE opens each stream")
    echo: bool = _setting(False, FLAG, "the first message is the STATE that was passed in")


@dataclass(frozen=True)
class Fail:
    """How and where this run goes wrong."""

    at: int = _setting(0, COUNT, "after so many records of this run, before their STATE; 0 is before the first")
    how: str = _setting("exit", {"enum": list(FAILURES)}, "what happens")


@dataclass(frozen=True)
class Settings:
    """The whole config file."""

    seed: int = _setting(0, {"type": "integer"}, "other seed, other values; the same seed gives the same bytes")
    streams: tuple[StreamSettings, ...] = field(
        default=(), metadata=_nested(StreamSettings, "what there is to sync, in order", many=True)
    )
    state: StateSettings = field(
        default_factory=StateSettings, metadata=_nested(StateSettings, "when STATE is written")
    )
    interleave: bool = _setting(False, FLAG, "the streams alternate record by record, not one after another")
    style: str = _setting("compact", {"enum": list(STYLES)}, "spacing, escaping and key order of a line")
    time_extracted: bool = _setting(True, FLAG, "RECORDs carry a time_extracted (constant, so that bytes repeat)")
    delay_ms: int = _setting(0, COUNT, "milliseconds after each record")
    batch_delay_ms: int = _setting(0, COUNT, "milliseconds after each STATE")
    stderr_bytes: int = _setting(0, COUNT, "bytes of log lines on stderr before the first record")
    stderr_every: int | None = _setting(None, NUMBER, "a log line each so many records")
    stdout_noise: int | None = _setting(None, NUMBER, 'the line "hello" on stdout before this record of the run')
    fail: Fail | None = field(default=None, metadata=_nested(Fail, "how the run goes wrong"))
    fail_once_file: str | None = _setting(None, TEXT, "fail only while this file is missing; failing creates it")
    no_output: bool = _setting(False, FLAG, "nothing on stdout, exit 0")
    secret: str | None = _setting(None, TEXT, "echoed on stderr, to prove that a runner masks it")
    sigterm_ok: bool = _setting(True, FLAG, "SIGTERM writes the STATE and exits 0, as SDK taps do; else it kills")
