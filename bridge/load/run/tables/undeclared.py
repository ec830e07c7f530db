"""Sentences on streams whose replication nobody declares: what later runs do with them, and why one is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bridge.errors import SettingsError
from bridge.load.run.streams import StreamPlan
from bridge.protocol.singer.replication import yaml_text
from bridge.settings.destination import APPEND_ONLY, UPSERT
from bridge.settings.options import Pipeline

_LISTED = 8


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def outlook(plans: Iterable[StreamPlan], *, merged_before: bool = True) -> list[str]:
    """Say what a further run does with streams whose replication nobody declares: one line for each kind."""
    unknown = [plan for plan in plans if not plan.is_known]
    parts = [plan.name for plan in unknown if plan.usual == UPSERT and plan.is_part]
    merged = [plan.name for plan in unknown if plan.usual == UPSERT and not plan.is_part]
    added = [plan.name for plan in unknown if plan.usual == APPEND_ONLY]
    lines = []
    if merged and merged_before:
        lines.append(
            f"nobody says how these are replicated, so each run may extract all of their rows, and merges them by key: "
            f"{listed(merged)}. Rows that are deleted in the source stay; with replication_method: FULL_TABLE they go"
        )
    if parts and merged_before:
        lines.append(
            f"the tap sends only the rows whose parent changed, so they are merged by key: {listed(parts)}. Rows that "
            f"are deleted in the source stay. If it does send all of them each time: {_whole(parts[0])}"
        )
    if added:
        lines.append(
            f"nobody says how these are replicated, and they have no key: {listed(added)}. A second run would add the "
            f"same rows again, and is refused until bridge.yaml says it: {_decision(added[0])}"
        )
    return lines


def _decision(stream: str) -> str:
    return f"{_whole(stream)}, or {{load_method: append-only}}"


def _whole(stream: str) -> str:
    return f"streams: {{{yaml_text(stream)}: {{replication_method: FULL_TABLE}}}}"


def refusal(pipeline: Pipeline, streams: Sequence[str], *, piped: bool = False) -> SettingsError:
    """The error for a run that would add these streams' rows again, with the settings to paste."""
    full = "load_method: overwrite" if piped else "replication_method: FULL_TABLE"
    lines = [f"    {yaml_text(stream)}: {{{full}}}" for stream in streams[:_LISTED]]
    more = [f"    # and {len(streams) - _LISTED} more"] if len(streams) > _LISTED else []
    where = "the target's settings" if piped else f"bridge.yaml, under pipelines.{pipeline.name}"
    hint = [
        f"nobody says how they are replicated, they have no key and no bookmark. Decide it in {where}:",
        "  streams:",
        *lines,
        *more,
        f"  # {{{full}}}: each run replaces the table by what the tap sends",
        "  # {load_method: append-only}: each run adds all that the tap sends",
        "  # {key_properties: [COLUMN]}: each row is there once by that key",
    ]
    what = "this run would add the same rows once more"
    return SettingsError(what, hint="\n".join(hint), streams=listed(streams))
