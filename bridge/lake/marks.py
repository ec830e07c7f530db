"""The marks of a run that ended well and looks wrong beside earlier runs: kinds, what each means, what to do."""

from __future__ import annotations

from collections.abc import Sequence

STANDSTILL, VOLUME, NO_STATE, DIFFERS = "standstill", "volume", "no_state", "differs"
"""The kinds of marks: a bookmark that does not move, far fewer rows than usual, no STATE, a table unlike its source."""

SHORT = {
    STANDSTILL: "bookmark stands still",
    VOLUME: "few rows",
    NO_STATE: "no STATE",
    DIFFERS: "differs from its source",
}
"""Each kind in a few words."""

STANDING_RUNS = 3
"""A bookmark that did not move in so many runs with rows stands still."""
_LISTED = 8


def advice(kind: str, streams: Sequence[str], pipeline: str) -> tuple[str, str]:
    """Explain a mark: its meaning, and what to do about it."""
    names = ", ".join(streams[:_LISTED]) + (f" and {len(streams) - _LISTED} more" if len(streams) > _LISTED else "")
    log = f"`singer-bridge runs show {pipeline} --logs` shows what the tap said"
    if kind == STANDSTILL:
        what = f"the bookmark has not moved in {STANDING_RUNS} runs, though rows came in each: {names}"
        key = "so that each run extracts the same rows: choose a replication key that grows with every change"
        fine = "nothing is to be done if all of these rows have the bookmark's value, as after one UPDATE"
        return what, f"the tap may not know where to go on, {key}; {fine}; {log}"
    if kind == VOLUME:
        look = "look at the source, and at what the tap's user may see; if all is well there, nothing is to be done"
        return f"far fewer rows than usual: {names}", f"{look}; {log}"
    if kind == DIFFERS:
        shown = f"`singer-bridge runs show {pipeline}` says what a run found, and what to type"
        fix = f"{shown}; `singer-bridge reconcile {pipeline}` compares once more; docs/differences.md has all ways"
        return f"not everything is as the source has it: {names}", fix
    again = "the next run extracts all of them again"
    fix = "report it to the tap's authors; `on_no_state: fail` refuses such a run before anything is committed"
    return f"rows came, and no STATE did, so {again}: {names}", fix
