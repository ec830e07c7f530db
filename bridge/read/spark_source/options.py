"""Spark's options: flat, in any case, all of them text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import SettingsError, did_you_mean
from bridge.lake.storage import lake_of
from bridge.read.query.pipelines import destination_of, log_of
from bridge.read.spark_source.place import PipelinePlace, explained
from bridge.settings.values.stores import AWS_CREDENTIALS, aws_credentials
from bridge.settings.values.units import MIB, parse_size

_STORES = ("s3", "azure", "gcs")
_NAMES = (
    "path",
    "pipeline",
    "table",
    "view",
    "columns",
    "commit",
    "changes",
    "from",
    "to",
    "keys",
    "startingCommit",
    "maxCommitsPerTrigger",
    "maxPartitionBytes",
    "pushFilters",
    *AWS_CREDENTIALS,
)
_OF_TABLE = ("commit", "pushFilters")
_OF_CHANGES = ("from", "to", "keys", "startingCommit", "maxCommitsPerTrigger")
_PARTITION = 32 * MIB


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a user gives."""

    place: PipelinePlace
    table: str
    is_view: bool
    """The table is asked for as a view."""
    columns: tuple[str, ...] | None
    commit: int | None
    changes: bool
    first: int | None
    """The first commit whose changes are read, from `from` or `startingCommit`."""
    last: int | None
    keys: tuple[str, ...] | None
    most_commits: int | None
    """Commits a trigger."""
    partition_bytes: int
    push_filters: bool


def read_options(options: Mapping[str, str]) -> Options:
    """Check the options, and look for the pipeline. Raises `SettingsError` that names the option."""
    values = {name.lower(): value for name, value in options.items()}
    _check_names(values)
    if "path" not in values:
        hint = 'name the bucket: .load("s3://lake"), or OPTIONS (path "s3://lake")'
        raise SettingsError("path: which lake?", hint=hint)
    names = [values[kind] for kind in ("table", "view") if kind in values]
    if len(names) != 1:
        raise SettingsError("table: which one?", hint="set one of the options table and view")
    changes = _flag(values, "changes")
    for name in _OF_TABLE if changes else _OF_CHANGES:
        if name.lower() in values:
            hint = "remove it, or read the table" if changes else 'add .option("changes", "true")'
            raise SettingsError(f"{name}: not of {'a change feed' if changes else 'a table'}", hint=hint)
    if "from" in values and "startingcommit" in values:
        raise SettingsError("startingCommit: `from` is set as well", hint="remove one of them")
    start = _number(values, "from", least=1)
    return Options(
        place=_place(values),
        table=names[0],
        is_view="view" in values,
        columns=_list(values, "columns"),
        commit=_number(values, "commit"),
        changes=changes,
        first=_number(values, "startingCommit", least=1) if start is None else start,
        last=_number(values, "to"),
        keys=_list(values, "keys"),
        most_commits=_number(values, "maxCommitsPerTrigger", least=1),
        partition_bytes=_size(values, "maxPartitionBytes", _PARTITION),
        push_filters=_flag(values, "pushFilters"),
    )


def environment_of(options: Mapping[str, str]) -> dict[str, str]:
    """boto3's variables among the options."""
    return aws_credentials({name.lower(): value for name, value in options.items()})


def _check_names(values: Mapping[str, str]) -> None:
    existing = {name.lower() for name in _NAMES}
    for name in values:
        if name not in existing and name.partition(".")[0] not in _STORES:
            hint = did_you_mean(name, _NAMES) or f"there are: {', '.join(_NAMES)}, and s3.*, azure.*, gcs.*"
            raise SettingsError(f"{name}: no such option", hint=hint)


def _place(values: Mapping[str, str]) -> PipelinePlace:
    stores: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, dot, key = name.partition(".")
        if dot:
            stores.setdefault(section, {})[key] = value.lower() == "true" if key == "path_style" else value
    destination = destination_of(values["path"], stores)
    environment = aws_credentials(values)
    with explained(environment):
        log = log_of(lake_of(destination), values.get("pipeline"))
    return PipelinePlace(destination.bucket, log.pipeline, destination.store_options, environment)


def _flag(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{name}: neither true nor false", hint=f'write .option("{name}", "true")', value=text)
    return text == "true"


def _number(values: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        hint = "`singer-bridge commits list` has the numbers of commits"
        raise SettingsError(f"{name}: not a whole number from {least} on", hint=hint, value=text)
    return int(text)


def _size(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name.lower())
    try:
        size = default if text is None else parse_size(text)
    except SettingsError as error:
        raise SettingsError(f"{name}: {error.message}", hint=error.hint) from None
    if not size:
        raise SettingsError(f"{name}: must be more than nothing", hint="such as 32MiB")
    return size


def _list(values: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """Names with commas between them; a name that has a comma is in a JSON list."""
    text = values.get(name.lower())
    if text is None:
        return None
    if text.lstrip().startswith("["):
        from bridge.exact_json import NotJson, loads

        try:
            return tuple(str(one) for one in loads(text.encode()))
        except NotJson:
            raise SettingsError(f"{name}: not a JSON list", hint='such as ["id", "name"], or id, name') from None
    names = tuple(one.strip() for one in text.split(",") if one.strip())
    if not names:
        raise SettingsError(f"{name}: names none", hint="such as id, name; leave it out for all")
    return names
