"""Everything that can go wrong, grouped by what the operator would do next.

```
BridgeError                 the root; `exit_code` 1
├── SettingsError           exit 2: change the settings or the command line
├── TapError                exit 1: look at the tap (its reason is in the message, its last stderr lines in the hint)
│   ├── TapNotFound         there is no such program; install it
│   └── TimedOut            the run's own limit; nothing is wrong but its length
├── DataError               exit 1: the tap's output cannot be stored as it stands; nothing was lost
│   ├── RecordBeforeSchema  a RECORD of a stream that has said no SCHEMA yet
│   └── StreamsHeldBack     exit 5: some streams were held back, all others are committed
├── EngineError             exit 1: Spark failed, or what it reported does not add up
├── SlotError               exit 1: look at the database's log or replication slot: rows were lost, or would be
│   └── DatabaseUnreachable  the database of the slot does not answer now
├── LakeError               exit 3: the bucket cannot be read or written
│   ├── CorruptLake         what is in the bucket contradicts itself; nothing is guessed
│   │   └── MissingFiles    files of a table were deleted; nothing was changed
│   ├── CommitExpired       a record or a file of an old commit is not kept any more
│   ├── CommitLost          another writer owns this commit number; this run is over
│   └── CommitUnknown       the commit may or may not have landed; nothing was aborted
├── PipelineHeld            exit 4: another run holds the pipeline
└── Interrupted             exit 128 + signal: somebody asked us to stop
```
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.durations import duration

LAST_LINES = "its last lines on stderr:"
"""The words before a tap's output in a hint."""


class BridgeError(Exception):
    """A failure with a message for people, a hint that says what to do, and an exit code.

    `facts` are appended to the message as `key=value`, so that messages stay constant and greppable.
    """

    exit_code = 1
    result: Any = None
    """The `bridge.Result` of the run that failed, where `bridge.Project.run` raises this; it may be None."""

    def __init__(self, message: str, *, hint: str = "", **facts: Any) -> None:
        self.facts = facts
        self.message = message + "".join(f" {key}={_text(value)}" for key, value in facts.items())
        self.hint = hint
        super().__init__(self.message)


class SettingsError(BridgeError):
    """A setting or an argument is wrong; nothing was started."""

    exit_code = 2
    files: tuple[Path, ...] = ()
    """The settings files that were read up to then, where one of them is wrong."""


class TapError(BridgeError):
    """The tap could not be started, failed, hung, or was stopped by a signal."""


class TapNotFound(TapError):
    """The tap's program is neither in its venv, nor on PATH, nor at its path."""


class TimedOut(TapError):
    """The run took longer than it was allowed to; what the tap's last STATE covers was committed."""


class DataError(BridgeError):
    """The tap's messages cannot be stored: protocol violated, type not supported, too many rejects."""


class RecordBeforeSchema(DataError):
    """A RECORD came before its stream's SCHEMA."""


class StreamsHeldBack(DataError):
    """Some streams cannot be stored and were held back, as their settings say; all others are committed."""

    exit_code = 5


class EngineError(BridgeError):
    """Spark or the accounting of its work failed; the epoch is dropped and extracted again."""


class SlotError(BridgeError):
    """A database's log, or its replication slot, cannot be read without losing rows, or has lost some already."""


class DatabaseUnreachable(SlotError):
    """The database that the slot is in does not answer: it may in a minute."""


class LakeError(BridgeError):
    """The bucket cannot be read or written: rights, space, a missing folder."""

    exit_code = 3


class CorruptLake(LakeError):
    """A record in the bucket is unreadable or contradicts another; an operator has to look."""


class MissingFiles(CorruptLake):
    """Files that the log names are gone. Raised before a run changes anything: the lake is as it was."""


class CommitExpired(LakeError):
    """A record or a file of an old commit is not kept any more, as `retention` says, or somebody deleted it."""


class CommitLost(LakeError):
    """Another writer created the commit number this run wanted. A loser never tries the next one."""


class CommitUnknown(LakeError):
    """Neither success nor failure of the commit is known. Nothing is aborted; the next run finds out."""


class PipelineHeld(BridgeError):
    """Another run of the same pipeline is alive."""

    exit_code = 4


class Interrupted(BridgeError):
    """The run was asked to stop; what was committed stays committed."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 128 + signal_number
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name}", hint="what was committed stays; run again to go on from there")


def _text(value: Any) -> Any:
    return duration(value) if isinstance(value, timedelta) else value


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The question for a hint, or an empty text where no known name is close."""
    close = difflib.get_close_matches(name, list(candidates), n=1)
    return f'did you mean "{close[0]}"?' if close else ""
