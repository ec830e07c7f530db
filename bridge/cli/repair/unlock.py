"""`unlock`: take a pipeline's lease away from a run that is dead, if no other machine can see that."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.answer import Answer
from bridge.cli.confirm import warn
from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.plain import echo
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, moment
from bridge.durations import duration
from bridge.errors import PipelineHeld
from bridge.lake.lease import fate, holder, last_lease, release, silence
from bridge.lake.storage import Storage


@click.command()
@pipeline_verb
@json_option("Print one JSON object.")
@click.option("--yes", is_flag=True, help="Do not ask, on a terminal.")
def unlock(selection: Selection, json_output: bool, yes: bool) -> None:
    """Free a pipeline that a dead run on another machine still holds. In a folder, a lock ends with its process.

    If that run is alive after all, it ends soon and commits nothing more. Without a terminal this needs --yes, unless
    the holder is known to be dead.

    \b
    singer-bridge unlock flights
    singer-bridge unlock --to ./lake --name x --yes
    """
    log = selection.pipeline(source=False).log
    storage, pipeline = log.storage, log.pipeline
    owner = _held(storage, pipeline)
    if owner:
        _expect_lock_can_go(storage, owner)
        _confirm(pipeline, owner, Answer(dry_run=False, yes=yes, json_output=json_output))
        if other := release(storage, pipeline, owner):
            hint = "look again: singer-bridge status"
            raise PipelineHeld("another run took it meanwhile", hint=hint, run=other.get("run"), host=other.get("host"))
    if json_output:
        facts = {"run_id": "run", **{key: key for key in ("pid", "host", "since", "renewed")}}
        held_by = owner and {key: owner.get(name) for key, name in facts.items()}
        as_json({"format": 1, "pipeline": pipeline, "held_by": held_by, "unlocked": bool(owner)})
    elif owner:
        echo(f"{pipeline}: free now; the next run looks first at what {owner.get('run')} left")
    else:
        echo(f"{pipeline}: nobody holds it")


def _held(storage: Storage, pipeline: str) -> dict[str, Any] | None:
    """Who holds the pipeline; in a bucket also a dead run whose lease is still there."""
    if storage.folder is not None:
        return holder(storage, pipeline)
    lease = last_lease(storage, pipeline)
    return lease if "nonce" in lease else None


def _expect_lock_can_go(storage: Storage, owner: dict[str, Any]) -> None:
    """Raise `PipelineHeld` in a folder: its lock ends with the process that has it, and cannot be taken."""
    if storage.folder is None:
        return
    pid, state = owner.get("pid"), fate(owner)
    hints = {
        "alive": f"it is alive: wait for it, or end it: kill {pid}",
        "stopped": f"it is suspended: kill -CONT {pid} lets it go on; kill -KILL {pid} ends it",
    }
    elsewhere = f"it is on {owner.get('host')}, or in a container there: wait for it, or end it there"
    facts = {key: owner.get(key, "unknown") for key in ("run", "pid", "host", "since")}
    raise PipelineHeld("a process has the lock", hint=hints.get(state, elsewhere), **facts)


def _confirm(pipeline: str, owner: dict[str, Any], answer: Answer) -> None:
    """Ask whether to take it from a run that may be alive. Raises `SettingsError` if nobody can be asked."""
    if answer.yes or fate(owner) == "gone":
        return
    who = ", ".join(f"{key} {owner.get(key, 'unknown')}" for key in ("run", "pid", "host"))
    situation = f"{pipeline} is held since {moment(owner.get('since'))} by {who}; {_signs_of_life(owner)}"
    hint = "if that process is dead: --yes. A run takes over by itself when it gives no sign of life for a minute"
    answer.require_consent(hint, f"there is no terminal to ask on: {situation}")
    warn(situation)
    answer.goes_ahead("take it away?")


def _signs_of_life(owner: dict[str, Any]) -> str:
    silent = silence(owner)
    if silent is None:
        return "it goes on renewing that, so it seems to be alive"
    return f"it last renewed that {duration(silent)} ago"
