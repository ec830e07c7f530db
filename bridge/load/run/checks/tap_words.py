"""Properties and whole files that a tap left out, as it says on stderr, though it ended well.

Its log is read once, after the load. Lines of a tap that words it otherwise say nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from bridge.lake.runs import Difference
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline

_IGNORED = re.compile(rb"Properties \((.+?)\) were present in the '(.+?)' stream but not found in catalog schema")
"""The Singer SDK's line on fields that it takes out of its records, once for each set of them."""
_TABLE = re.compile(rb'Syncing table "(.+?)"')
_SKIPPED = re.compile(
    rb'Skipping (?:matched file )?"?(?P<file>[^"]+?)"? (?:file )?(?:as|because)\b'
    rb'|"(?P<other>[^"]+)" (?:without extension will not|having the "[^"]*" extension will not) be synced'
)
"""How tap-s3-csv and tap-sftp say that they leave out a file that their settings choose."""
_EMPTY = re.compile(rb"as it is empty")
_NAMED = 5


def left_out(log: Iterable[bytes], streams: Collection[str], pipeline: Pipeline) -> Iterator[Difference]:
    """The differences that a tap's log tells of the `streams` that it sent."""
    ignored, skipped, table = dict[str, dict[str, None]](), dict[str, dict[str, None]](), ""
    for line in log:
        if b"Ignoring" in line and (match := _IGNORED.search(line)):
            ignored.setdefault(_text(match[2]), {}).update(dict.fromkeys(re.findall(r"'([^']+)'", _text(match[1]))))
        elif match := _TABLE.search(line):
            table = _text(match[1])
        elif table and (match := _SKIPPED.search(line)) and not _EMPTY.search(line):
            skipped.setdefault(table, {})[_text(match["file"] or match["other"])] = None
    for stream in sorted(ignored.keys() & set(streams)):
        yield Difference(stream, "ignored_fields", _of_fields(ignored[stream], stream, pipeline))
    for stream in sorted(skipped.keys() & set(streams)):
        yield Difference(stream, "skipped_file", _of_files(skipped[stream], stream, pipeline), len(skipped[stream]))


def _of_fields(names: Collection[str], stream: str, pipeline: Pipeline) -> str:
    return (
        f"the source has {_listed(names)}, which the tap's catalog does not, so the tap left the values out. If "
        f"`singer-bridge discover {pipeline.name}` does not find them, add them to the schema in the catalog; then "
        f"{reload(pipeline, [stream])}"
    )


def _of_files(names: Collection[str], stream: str, pipeline: Pipeline) -> str:
    return (
        f"the tap could not read {_listed(names)} and went on: its bookmark is past them, so no later run reads them. "
        f"`singer-bridge runs show {pipeline.name} --logs` says why; mend them, then write them anew, so that they are "
        f"newer than the bookmark, or {reload(pipeline, [stream])}"
    )


def _listed(names: Collection[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(list(names)[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
