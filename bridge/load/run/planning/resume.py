"""`--resume`: skips the streams that the last run completed before it failed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.run_status import current
from bridge.lake.runs import newest_opened
from bridge.lake.storage import Storage
from bridge.protocol.singer.catalog import deselected, stream_names
from bridge.protocol.singer.selection import select
from bridge.protocol.singer.state import resume_point, without
from bridge.settings.destination import APPEND_ONLY


def completed(storage: Storage, pipeline: str, names: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> set[str]:
    """The streams that need not run again: none after a success, or where nobody can read how the last run ended.

    A stream counts when all of its rows are committed and the tap went on to another one. What that run itself left
    out is left out again, so that a pipeline may be resumed several times in a row.

    No stream counts if an unfinished one is appended and has no bookmark of its own: it may be the child of a stream
    that looks complete, whose bookmark covers its rows, too. `names` are all names of each stream.
    """
    opened = newest_opened(storage, pipeline)
    last = current(storage, opened) if opened else None
    if last is None or last.status not in ("failed", "interrupted", "died"):
        return set()
    finished = {name for name, result in last.streams.items() if result.complete}
    appended = {name for name, result in last.streams.items() if result.load_method == APPEND_ONLY}
    if any(resume_point(last.state, names.get(name, (name,))) is None for name in appended - finished):
        return set()
    return finished | set(last.skipped)


def leave_out(catalog: dict[str, Any] | None, finished: set[str], state: Any) -> tuple[dict[str, Any] | None, set[str]]:
    """The catalog with the streams of `finished` deselected, and the names of all deselected streams.

    Raises `SettingsError` where streams are to be left out and there is no catalog, or nothing would be left, or the
    STATE is flat: its one position may also belong to the skipped streams, which would then lose rows.
    """
    if not finished:
        return catalog, deselected(catalog) if catalog else set()
    if catalog is None:
        hint = "make one with `singer-bridge discover`; or run without --resume, each stream goes on at its bookmark"
        raise SettingsError("--resume needs a catalog", hint=hint)
    without(state, finished)
    names = stream_names(catalog)
    out = {other for name in finished for other in names.get(name, (name,))} | deselected(catalog)
    left = [stream for stream in catalog["streams"] if not _names(stream) & out]
    if not left:
        raise SettingsError(
            "nothing is left to resume", hint="run without --resume", completed=", ".join(sorted(finished))
        )
    narrowed = select(catalog, (), [str(stream.get("tap_stream_id") or stream.get("stream")) for stream in left])
    return narrowed, deselected(narrowed)


def _names(stream: dict[str, Any]) -> set[str]:
    return {str(name) for name in (stream.get("tap_stream_id"), stream.get("stream")) if name}
