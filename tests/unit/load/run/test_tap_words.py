"""Data that a tap left out, as it says on stderr: the words of real taps."""

from __future__ import annotations

from pathlib import Path

from bridge.load.run.checks.not_extracted import left_out
from tests.unit.load.run.test_table_plan import pipeline

_SDK = (
    "2026-11-29 05:22:47,458 | WARNING  | tap-x.people | Properties {} were present in the 'people' stream but not "
    "found in catalog schema. Ignoring."
)
_FILES = """INFO Syncing table "old".
INFO Syncing table "things".
WARNING Skipping drop/locked.csv file because you do not have enough permissions.
WARNING Skipping drop/gone.csv file because it is unable to be read.
WARNING Skipping in/odd.csv file as parsing failed. Verify an extension of the file.
WARNING Skipping "in/two.tar.gz" file as .tar.gz extension is not supported
WARNING Skipping matched file "in/none.csv" as it is empty
WARNING "in/words" without extension will not be synced.
"""


def said(tmp_path: Path, text: str, *streams: str) -> list[tuple[str, str, str]]:
    lines = text.encode().splitlines(keepends=True)
    return [(one.stream, one.kind, one.text) for one in left_out(lines, streams, pipeline(tmp_path))]


def test_fields_that_the_singer_sdk_takes_out(tmp_path: Path) -> None:
    """Each once, of a stream that was loaded, with what to type."""
    text = "\n".join(_SDK.format(names) for names in ("('late_x',)", "('late_x', 'size')"))
    [(stream, kind, words)] = said(tmp_path, text, "people", "other")
    assert (stream, kind) == ("people", "ignored_fields")
    assert "the source has late_x, size, which" in words
    assert "singer-bridge run p --full -s people" in words
    assert said(tmp_path, text, "other") == []


def test_files_that_a_tap_skips(tmp_path: Path) -> None:
    """An empty file has no rows; all others are named under the table that the tap was reading."""
    [(stream, kind, words)] = said(tmp_path, _FILES, "old", "things")
    assert (stream, kind) == ("things", "skipped_file")
    assert "read drop/locked.csv, drop/gone.csv, in/odd.csv, in/two.tar.gz, in/words and went on" in words
