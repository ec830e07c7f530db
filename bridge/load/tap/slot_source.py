"""Which slot a pipeline's tap reads, in which database, and which of its settings names the slot.

meltanolabs-tap-postgres names the slot in `replication_slot_name`. pipelinewise-tap-postgres makes the name from
`dbname` and `tap_id`, and prefers a slot named without `tap_id` if there is one.
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
from bridge.load.tap.installed import tap_package
from bridge.settings.options import Pipeline

Kind = Literal["meltanolabs", "pipelinewise", "other"]

_KINDS: dict[str, Kind] = {
    "meltanolabs-tap-postgres": "meltanolabs",
    "pipelinewise-tap-postgres": "pipelinewise",
}
LONGEST_NAME = 63
"""Letters of a name in PostgreSQL; of a longer one it takes so many."""
_MELTANO_SLOT = "tappostgres"
"""The slot that meltanolabs-tap-postgres reads if its settings name none."""


@dataclass(frozen=True, slots=True)
class SlotSource:
    """A tap that reads a logical replication slot, and where that slot is.

    `setting` is the key of the tap's settings that names the slot, `slot` the slot that it names now. `parameters` is
    what libpq connects with; empty if the tap's settings do not tell. `tunnel`: the tap goes through SSH.
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
        """A copy's whole name, and the value of `setting` by which the tap finds it.

        `name` is cut where PostgreSQL would cut the whole: the tap would not find a name that the server has cut.
        """
        if self.kind == "pipelinewise":
            name = name[: max(self.room, 0)]
            return _wise_name(self.database, name), name
        return name, name

    @property
    def room(self) -> int:
        """How many letters a copy's own part of its name may have."""
        return LONGEST_NAME - (len(self.shared_slot) + 1 if self.shared_slot else 0)


def slot_source(pipeline: Pipeline, argv: Sequence[str]) -> SlotSource | None:
    """The slot that a pipeline's tap reads, None if we do not know the tap. Connects to nothing."""
    options, config = pipeline.source.replication_slot, tap_settings(pipeline)
    kind, version = _kind(pipeline, argv)
    if kind is None and not options.setting:
        return None
    kind = kind or "other"
    setting = options.setting or {"meltanolabs": "replication_slot_name", "pipelinewise": "tap_id"}[kind]
    parameters = _of_url(options.url) if options.url else _parameters(config)
    database = str(parameters.get("dbname") or "")
    if kind == "pipelinewise":
        database = str(config.get("dbname") or database)
        slot = _wise_name(database, str(config.get("tap_id") or ""))
    else:
        slot = str(config.get(setting) or (_MELTANO_SLOT if kind == "meltanolabs" else ""))
    tunnel = not options.url and bool((config.get("ssh_tunnel") or {}).get("enable"))
    return SlotSource(kind, version, setting, slot, parameters, database, tunnel)


def tap_settings(pipeline: Pipeline) -> dict[str, Any]:
    """The tap's settings, also those of a file that is passed untouched; empty if that is no JSON object."""
    config: Any = pipeline.source.config
    if isinstance(config, Path):
        with suppress(OSError, NotJson):  # the tap will say what is wrong with it
            config = loads(config.read_bytes())
    return dict(config) if isinstance(config, dict) else {}


def _kind(pipeline: Pipeline, argv: Sequence[str]) -> tuple[Kind | None, str]:
    """Which of the known taps this is, and its version: by the package of its program, otherwise by `pip_url`."""
    name, version = tap_package(argv[0])
    package = re.sub(r"[-_.]+", "-", name).lower()
    if package in _KINDS:
        return _KINDS[package], version
    url = re.sub(r"[-_.]+", "-", pipeline.source.pip_url or "").lower()
    return next((kind for part, kind in _KINDS.items() if name == "unknown" and part in url), None), version


def _wise_name(database: str, tap_id: str = "") -> str:
    """The slot's name as pipelinewise-tap-postgres makes it."""
    name = f"pipelinewise_{database}" + (f"_{tap_id}" if tap_id else "")
    return re.sub("[^a-z0-9_]", "_", name.lower())


def _parameters(config: dict[str, Any]) -> dict[str, str]:
    """The parameters with which libpq connects, as the tap's own settings say them."""
    if url := config.get("sqlalchemy_url"):
        return _of_url(str(url))
    parameters = {"dbname": config.get("dbname") or config.get("database")}
    parameters |= {name: config.get(name) for name in ("host", "port", "user", "password")}
    if str(config.get("ssl", "")).lower() == "true":
        parameters["sslmode"] = "require"
    if config.get("ssl_enable"):
        parameters["sslmode"] = config.get("ssl_mode") or "verify-full"
        names = {"sslrootcert": "ssl_certificate_authority"}
        if config.get("ssl_client_certificate_enable"):
            names |= {"sslcert": "ssl_client_certificate", "sslkey": "ssl_client_private_key"}
        files = {parameter: config.get(setting) for parameter, setting in names.items()}
        parameters |= {parameter: file for parameter, file in files.items() if file and Path(str(file)).is_file()}
    return {name: str(value) for name, value in parameters.items() if value not in (None, "")}


def _of_url(url: str) -> dict[str, str]:
    """The parts of a URL as SQLAlchemy and libpq write it; a parameter of its query overrides the rest."""
    parts = urlsplit(url)
    parameters: dict[str, Any] = {"host": parts.hostname, "dbname": unquote(parts.path.removeprefix("/"))}
    with suppress(ValueError):
        parameters["port"] = parts.port
    parameters["user"] = parts.username and unquote(parts.username)
    parameters["password"] = parts.password and unquote(parts.password)
    parameters |= {name: unquote(value) for name, _, value in (one.partition("=") for one in parts.query.split("&"))}
    return {name: str(value) for name, value in parameters.items() if name and value not in (None, "")}
