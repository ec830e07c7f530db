"""Which slot a pipeline's tap reads, in which database, and by which of its settings the slot is named.

meltanolabs-tap-postgres names the slot in `replication_slot_name`. pipelinewise-tap-postgres makes the name out of
`dbname` and `tap_id`, and prefers a slot that is named without `tap_id` wherever there is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from bridge.exact_json import NotJson, loads
from bridge.settings.options import Pipeline
from bridge.tap.installed import tap_package

Kind = Literal["meltanolabs", "pipelinewise", "other"]

_KINDS: dict[str, Kind] = {
    "meltanolabs-tap-postgres": "meltanolabs",
    "pipelinewise-tap-postgres": "pipelinewise",
}
_MELTANO_SLOT = "tappostgres"
"""The slot that meltanolabs-tap-postgres reads where its settings name none."""


@dataclass(frozen=True, slots=True)
class SlotSource:
    """A tap that reads a logical replication slot, and where that slot is.

    `setting` is the key of the tap's settings that names the slot, `slot` the slot that it names now. `parameters` is
    what libpq connects with; empty where the tap's settings do not tell. `tunnel`: the tap goes through SSH.
    """

    kind: Kind
    version: str
    setting: str
    slot: str
    parameters: dict[str, str] = field(repr=False)
    database: str = ""
    tunnel: bool = False

    @property
    def shared_slot(self) -> str:
        """The slot that pipelinewise-tap-postgres reads before any other, if it exists; empty for other taps."""
        return _wise_name(self.database) if self.kind == "pipelinewise" else ""

    def named(self, name: str) -> tuple[str, str]:
        """Return a copy's whole name and the value of `setting` by which the tap finds it."""
        if self.kind != "pipelinewise":
            return name, name
        return _wise_name(self.database, name), name


def slot_source(pipeline: Pipeline, argv: Sequence[str]) -> SlotSource | None:
    """Return the slot that a pipeline's tap reads, None where nothing is known of the tap. Connects to nothing."""
    said, config = pipeline.source.replication_slot, tap_settings(pipeline)
    kind, version = _kind(pipeline, argv)
    if kind is None and not said.setting:
        return None
    kind = kind or "other"
    setting = said.setting or {"meltanolabs": "replication_slot_name", "pipelinewise": "tap_id"}[kind]
    parameters = _of_url(said.url) if said.url else _parameters(config)
    database = str(parameters.get("dbname") or "")
    if kind == "pipelinewise":
        database = str(config.get("dbname") or database)
        slot = _wise_name(database, str(config.get("tap_id") or ""))
    else:
        slot = str(config.get(setting) or (_MELTANO_SLOT if kind == "meltanolabs" else ""))
    tunnel = not said.url and bool((config.get("ssh_tunnel") or {}).get("enable"))
    return SlotSource(kind, version, setting, slot, parameters, database, tunnel)


def tap_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Return the tap's settings, also those of a file that is passed untouched; nothing where it is no JSON object."""
    config: Any = pipeline.source.config
    if isinstance(config, Path):
        with suppress(OSError, NotJson):  # the tap will say what is wrong with it
            config = loads(config.read_bytes())
    return dict(config) if isinstance(config, dict) else {}


def _kind(pipeline: Pipeline, argv: Sequence[str]) -> tuple[Kind | None, str]:
    """Return which of the taps that we know this is, by the package that its program is of, else by `pip_url`."""
    name, version = tap_package(argv[0])
    known = re.sub(r"[-_.]+", "-", name).lower()
    if known in _KINDS:
        return _KINDS[known], version
    asked = re.sub(r"[-_.]+", "-", pipeline.source.pip_url or "").lower()
    return next((kind for package, kind in _KINDS.items() if name == "unknown" and package in asked), None), version


def _wise_name(database: str, tap_id: str = "") -> str:
    """Return the slot's name as pipelinewise-tap-postgres makes it."""
    name = f"pipelinewise_{database}" + (f"_{tap_id}" if tap_id else "")
    return re.sub("[^a-z0-9_]", "_", name.lower())


def _parameters(config: dict[str, Any]) -> dict[str, str]:
    """Return what libpq connects with, as the tap's own settings say it."""
    if url := config.get("sqlalchemy_url"):
        return _of_url(str(url))
    found = {"dbname": config.get("dbname") or config.get("database")}
    found |= {name: config.get(name) for name in ("host", "port", "user", "password")}
    if str(config.get("ssl", "")).lower() == "true":
        found["sslmode"] = "require"
    if config.get("ssl_enable"):
        found["sslmode"] = config.get("ssl_mode") or "verify-full"
        names = {"sslrootcert": "ssl_certificate_authority"}
        if config.get("ssl_client_certificate_enable"):
            names |= {"sslcert": "ssl_client_certificate", "sslkey": "ssl_client_private_key"}
        files = {ours: config.get(theirs) for ours, theirs in names.items()}
        found |= {ours: file for ours, file in files.items() if file and Path(str(file)).is_file()}
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _of_url(url: str) -> dict[str, str]:
    """Return the parts of a URL as SQLAlchemy and libpq write it; a parameter of its query counts more."""
    parts = urlsplit(url)
    found: dict[str, Any] = {"host": parts.hostname, "dbname": unquote(parts.path.removeprefix("/"))}
    with suppress(ValueError):
        found["port"] = parts.port
    found |= {
        "user": parts.username and unquote(parts.username),
        "password": parts.password and unquote(parts.password),
    }
    found |= {name: unquote(value) for name, _, value in (each.partition("=") for each in parts.query.split("&"))}
    return {name: str(value) for name, value in found.items() if name and value not in (None, "")}
