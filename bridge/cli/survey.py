"""The pipelines that a listing verb shows: those of the file, those of the bucket, or the one that was named."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.cli import report
from bridge.cli.selection import ChosenPipeline, Selection, settings_file, settings_in
from bridge.cli.show import count_of
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.presence import pipelines_in
from bridge.lake.storage import lake_of
from bridge.load.tap.source import home_folder
from bridge.settings.inline import inline_destination


@dataclass(frozen=True, slots=True)
class Unread:
    """A pipeline whose settings do not say where its lake is. The others are shown all the same."""

    name: str
    error: SettingsError

    @property
    def text(self) -> str:
        """The text for a row of a table."""
        return f"settings: {self.error.message}"


def survey(selection: Selection, *, tables: bool = False) -> list[ChosenPipeline | Unread]:
    """The pipeline that was named, else all of the bucket or of the file. Their sources are not read.

    `tables`: the verb writes to tables; see `Settings.pipeline`.

    Raises `SettingsError` for a name that the file or the bucket does not have, and for a bucket without pipelines.
    """
    name = selection.name
    if selection.to is None:
        return (
            [selection.pipeline(source=False, tables=tables)]
            if name
            else _all_of(settings_file(selection.file), tables)
        )
    storage = lake_of(inline_destination(selection.to))
    names = pipelines_in(storage)
    if not names:
        raise SettingsError("there is no pipeline in this bucket", hint="check --to", bucket=storage.uri)
    if not name:
        return [selection.of(each).pipeline() for each in names]
    chosen = selection.pipeline()
    if name not in names:
        hint = did_you_mean(name, names) or f"it has: {', '.join(names)}"
        raise SettingsError("no such pipeline in this bucket", hint=hint, pipeline=name, bucket=storage.uri)
    return [chosen]


def pipeline_names(selection: Selection) -> Collection[str]:
    """The names of all pipelines of the file, or of the bucket."""
    if selection.to is not None:
        return pipelines_in(lake_of(inline_destination(selection.to)))
    return settings_in(settings_file(selection.file)).pipelines.keys()


def one_or_all(selection: Selection, *, tables: bool = False) -> tuple[list[ChosenPipeline], int]:
    """The pipeline that is meant; if none is named and there are several, all that are readable.

    The second value is the exit code of those that cannot be read: each is reported. `tables`: see `survey`.
    """
    if selection.name:
        return [selection.pipeline(source=False, tables=tables)], 0
    if selection.to is not None and len(pipelines_in(lake_of(inline_destination(selection.to)))) < 2:
        return [selection.pipeline(source=False, tables=tables)], 0
    return readable(survey(selection, tables=tables))


def readable(among: Sequence[ChosenPipeline | Unread]) -> tuple[list[ChosenPipeline], int]:
    """The readable pipelines. The others are reported, and decide the exit code."""
    code = max((report(each.error) for each in among if isinstance(each, Unread)), default=0)
    return [each for each in among if isinstance(each, ChosenPipeline)], code


def _all_of(path: Path, tables: bool) -> list[ChosenPipeline | Unread]:
    settings = settings_in(path)
    pipelines = list[ChosenPipeline | Unread]()
    for name in settings.pipelines:
        try:
            pipelines.append(ChosenPipeline(settings.pipeline(name, source=False, tables=tables), home_folder(path)))
        except SettingsError as error:
            if len(settings.pipelines) == 1:
                raise
            pipelines.append(Unread(name, error))
    return pipelines


def with_warnings(status: str, warnings: int) -> str:
    """A run's status for people, with the number of its warnings."""
    return f"{status}, {count_of(warnings, 'warning')}" if warnings else status
