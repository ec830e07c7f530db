"""The messages that pipelinewise-tap-kafka leaves out in silence: a setting against it, and a look before it starts.

It commits to Kafka what it has printed, which may be ahead of the lake; and where an offset is no longer there, its
driver goes on behind the newest message.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

from bridge.errors import TapError
from bridge.exact_json import NotJson, dumps, loads
from bridge.load.tap.database import ask_kafka
from bridge.load.tap.database.mysql import python_of
from bridge.settings.commands import full_run

KAFKA_TAP = "pipelinewise-tap-kafka"
_LIMIT = 60
"""Seconds for all of an answer."""


def kafka_settings(settings: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """Where the tap begins a partition without a bookmark, so that no message is left out.

    `earliest` is where its group stands in Kafka: after a crash, behind messages that no commit has. With `latest` it
    begins behind what came since the last run into a partition that was empty then.
    """
    begin = settings.get("initial_start_time") or "latest"
    is_late = begin == "earliest" or (begin == "latest" and _offsets(settings, state))
    return {"initial_start_time": "beginning"} if is_late else {}


def refuse_gaps(program: str, pipeline: str, settings: Mapping[str, Any], state: Any) -> None:
    """Raise `TapError` if Kafka no longer has what follows a bookmark. `program` is the tap's.

    If Kafka cannot be asked, nothing is refused: the tap will say why.
    """
    offsets, topic = _offsets(settings, state), str(settings.get("topic"))
    if not offsets:
        return
    removed: dict[int, int] = {}
    for number, (first, end) in _watermarks(program, settings, list(offsets)).items():
        if end <= offsets[number]:
            raise TapError(
                "the topic ends before the bookmark: it was made anew, or it lost messages",
                topic=topic,
                partition=number,
                bookmark=offsets[number],
                end=end,
                hint=f"to add all that it has now: singer-bridge state clear {pipeline} -s {shlex.quote(topic)}; to "
                f"replace the table by it: {full_run(pipeline, [topic])}",
            )
        if first > offsets[number] + 1:
            removed[number] = first
    if removed:
        number, first = min(removed.items())
        bookmarks = {f"partition_{number}": {"offset": first} for number, first in sorted(removed.items())}
        patch = shlex.quote(dumps({"bookmarks": {topic: bookmarks}}).decode())
        raise TapError(
            "Kafka has removed messages that no run has read",
            topic=topic,
            partition=number,
            bookmark=offsets[number],
            first=first,
            hint="the tap would skip those that are left, too. To go on with the first that Kafka still has: "
            f"singer-bridge state merge {pipeline} {patch}",
        )


def _offsets(settings: Mapping[str, Any], state: Any) -> dict[int, int]:
    """The offset of the last message that was read, for each partition with a bookmark."""
    try:
        marks = state["bookmarks"][settings["topic"]].values()
        return {int(mark["partition"]): int(mark["offset"]) for mark in marks if isinstance(mark, dict)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _watermarks(program: str, settings: Mapping[str, Any], partitions: list[int]) -> dict[int, tuple[int, int]]:
    """The first offset and the next one of partitions; nothing if Kafka does not answer."""
    servers, group, topic = (settings.get(name) for name in ("bootstrap_servers", "group_id", "topic"))
    question = {"servers": servers, "group": group, "topic": topic, "partitions": partitions}
    argv = [python_of(program), ask_kafka.__file__]
    try:
        answer = subprocess.run(argv, input=dumps(question), capture_output=True, timeout=_LIMIT, check=True)
        return {int(number): (int(first), int(end)) for number, (first, end) in loads(answer.stdout).items()}
    except (OSError, subprocess.SubprocessError, NotJson, TypeError, ValueError, AttributeError):
        return {}
