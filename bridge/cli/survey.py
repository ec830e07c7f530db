"""What verbs look at that speak of several pipelines: those of the file, of the bucket, or the one that was named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.cli import report
from bridge.cli.selection import Chosen, choose, in_bucket, settings_file, settings_in
from bridge.cli.show import count_of
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.lease import holds
from bridge.lake.runs import read_run
from bridge.settings.inline import inline_destination
from bridge.storage import Storage, lake_of
from bridge.tap.source import home_folder


@dataclass(frozen=True, slots=True)
class Unread:
    """A pipeline whose settings do not say where its lake is; the others can be looked at all the same."""

    name: str
    error: SettingsError

    @property
    def text(self) -> str:
        """Return what a row of a table says of it."""
        return f"settings: {self.error.message}"


def look_at(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None) -> list[Chosen | Unread]:
    """Return the pipeline that was named, else all of the bucket or of the file. Their sources are not read.

    Raises `SettingsError` for a name that the file or the bucket does not have, and for a bucket without pipelines.
    """
    named = name or pipeline_name
    if to is None:
        return [choose(named, file, None, None, look=True)] if named else _all_of(settings_file(file))
    storage = lake_of(inline_destination(to))
    known = in_bucket(storage)
    if not known:
        raise SettingsError("there is no pipeline in this bucket", hint="check --to", bucket=storage.uri)
    if not named:
        return [choose(each, file, to, None) for each in known]
    chosen = choose(name, file, to, pipeline_name)
    if named not in known:
        hint = did_you_mean(named, known) or f"it has: {', '.join(known)}"
        raise SettingsError("no such pipeline in this bucket", hint=hint, pipeline=named, bucket=storage.uri)
    return [chosen]


def one_or_all(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None) -> list[Chosen | Unread]:
    """Return the pipeline that is meant, as verbs of one pipeline choose it; where none is named, and there are
    several in the file or the bucket, all of them.
    """
    named = name or pipeline_name
    several = len(in_bucket(lake_of(inline_destination(to)))) > 1 if to is not None and not named else to is None
    if named or not several:
        return [choose(name, file, to, pipeline_name, look=True)]
    return look_at(None, file, to, None)


def readable(among: Sequence[Chosen | Unread]) -> tuple[list[Chosen], int]:
    """Return those that can be looked at; the others are reported, and the exit code is theirs."""
    code = max((report(each.error) for each in among if isinstance(each, Unread)), default=0)
    return [each for each in among if isinstance(each, Chosen)], code


def _all_of(path: Path) -> list[Chosen | Unread]:
    settings, found = settings_in(path), list[Chosen | Unread]()
    for name in settings.looked_at:
        try:
            found.append(Chosen(settings.look(name), home_folder(path)))
        except SettingsError as error:
            if len(settings.looked_at) == 1:
                raise
            found.append(Unread(name, error))
    return found


def with_warnings(status: str, warnings: int) -> str:
    """Return a run's status for people: what it warned of is not to be overlooked in a list."""
    return f"{status}, {count_of(warnings, 'warning')}" if warnings else status


def settled(storage: Storage, record: dict[str, Any]) -> dict[str, Any]:
    """Return a run's record with its true status: `died` for one that says `running` and gives no sign of life."""
    if record.get("status") != "running":
        return record
    if holds(storage, record["pipeline"], record["run_id"]):
        return record
    record = read_run(storage, record["pipeline"], record["run_id"]) or record  # it may have ended just now
    return record | {"status": "died"} if record["status"] == "running" else record
