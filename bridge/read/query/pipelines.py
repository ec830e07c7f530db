"""Which bucket, and which of its pipelines, is meant by settings that are no bridge.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Log
from bridge.lake.presence import pipelines_in
from bridge.lake.storage import Storage

if TYPE_CHECKING:
    from bridge.settings.destination import Destination


def log_of(storage: Storage, name: str | None) -> Log:
    """The log of a pipeline; without a name that of the only one. Raises `SettingsError` if there is no such one."""
    names = pipelines_in(storage)
    if name is None and len(names) > 1:
        raise SettingsError("pipeline: which one?", hint=f"set it to one of: {', '.join(names)}", bucket=storage.uri)
    if not names:
        hint = "correct the bucket, or load something into it first"
        raise SettingsError("this bucket has no pipeline", hint=hint, bucket=storage.uri)
    if name is None:
        name = names[0]
    if name not in names:
        hint = did_you_mean(name, names) or f"there are: {', '.join(names)}"
        raise SettingsError("no such pipeline in this bucket", hint=hint, pipeline=name, bucket=storage.uri)
    return Log(storage, name)


def destination_of(bucket: str, stores: Mapping[str, Mapping[str, Any]]) -> Destination:
    """A bucket, and how its store is reached, as `destination` has it. Raises `SettingsError` that names the key."""
    from pydantic import ValidationError

    from bridge.settings.destination import Destination

    try:
        return Destination.model_validate({"bucket": bucket, **stores})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise SettingsError(f"{where}: {first['msg']}", hint="docs/reference.md has the settings of a bucket") from None
