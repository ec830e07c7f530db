"""Hints for a run that failed, from its settings: what they do not promise, and what to do instead."""

from __future__ import annotations

import re

from bridge.errors import LAST_LINES, BridgeError, TapError, TimedOut
from bridge.load.slots.guard import log_based
from bridge.load.tap.catalog_overrides import wanted_methods
from bridge.protocol.singer.catalog import Catalog, stream_ids
from bridge.settings.commands import reload, selecting
from bridge.settings.options import Pipeline

_RESET = "Unable to resume change stream from resume token. Resetting resume token."
"""The line of meltanolabs-tap-mongodb on stderr before it goes on without its bookmark (MongoDB before 4.2)."""
_NO_LOG = re.compile(
    "resume point may no longer be in the oplog|ChangeStreamHistoryLost|resume token was not found"
    "|Could not find first log file name in binary log index|binary log\\(s\\) no longer exist"
)
"""How MongoDB, MySQL and their taps say that the log is no longer there."""


_NO_TABLE = re.compile(
    r"""(?:KeyError|NoSuchTableError): ['"]?([^\s'"]+)|(?:relation|[Tt]able) ['"]([^'"]+)['"] does(?: not|n't) exist"""
)
"""How taps and databases say that a table is not there."""


def explained(error: BridgeError, pipeline: Pipeline, catalog: Catalog | None) -> str:
    """The hint of an error that ended a load, with what the settings and the catalog add to it."""
    hint = error.hint
    if LAST_LINES in hint:
        missing = wanted_methods(hint, pipeline, catalog)
        expired = _expired(hint, pipeline, catalog)
        lost = _no_table(hint, pipeline, catalog)
        hint = f"{expired}{lost}{missing}{hint}\nall lines: singer-bridge runs show {pipeline.name} --logs"
    if isinstance(error, TimedOut):
        if pipeline.commit.at == "end":
            hint = "commit.at is end: this run left all as it was, and the next needs as long; raise --timeout"
    elif isinstance(error, TapError):
        hint = _not_held_back(pipeline) + hint
    return hint


def _expired(words: str, pipeline: Pipeline, catalog: Catalog | None) -> str:
    """The hint for a tap whose bookmark the database can no longer follow; empty if it said no such thing."""
    if not _NO_LOG.search(words):
        return ""
    streams = log_based(pipeline, catalog)
    return f"the database no longer has the changes since the bookmark; load again: {reload(pipeline, streams)}\n"


def _no_table(words: str, pipeline: Pipeline, catalog: Catalog | None) -> str:
    """The hint if the source lacks a table of the catalog; empty if it said no such thing."""
    named = {(match[1] or match[2]).replace(".", "-") for match in _NO_TABLE.finditer(words)}
    streams = stream_ids(catalog) if catalog else []
    lost = [name for name in streams if any(name == one or name.endswith(f"-{one}") for one in named)]
    return "".join(
        f"the source has no table {name}, or the tap's user may not read it: `singer-bridge discover {pipeline.name}` "
        f"brings the catalog up to date, `{selecting(pipeline.name, f'!{name}')}` loads the others\n"
        for name in lost[:1]
    )


def restarted(log: bytes) -> bool:
    """Whether a tap that ended well gave up its bookmark on the way, and went on from now."""
    return _RESET.encode() in log


def _not_held_back(pipeline: Pipeline) -> str:
    """The hint if a tap fails though the settings hold streams back; empty if they do not."""
    streams = [glob for glob, keys in pipeline.streams.items() if keys.on_error == "hold"]
    if not streams:
        return ""
    return (
        f"on_error: hold ({', '.join(streams)}) is for rows that cannot be stored; the tap itself failed, which ends "
        f"the run. If it cannot read a stream, load the others: singer-bridge select {pipeline.name} '!STREAM'\n"
    )
