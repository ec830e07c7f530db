"""The Singer SDK's command line and settings around the streams of a lake."""

from __future__ import annotations

import io
import json
import sys
from copy import deepcopy
from types import FrameType
from typing import IO, Any, ClassVar

from singer_sdk import Tap, singerlib
from singer_sdk.helpers.capabilities import CapabilitiesEnum, PluginCapabilities, TapCapabilities

from bridge.cli.plain import plain
from bridge.errors import BridgeError, SettingsError, did_you_mean
from bridge.protocol.singer.catalog import key_properties, replication_method, stream_id
from bridge.read.query.changes.feed import ChangeFeed
from tap_bridge.bookmark import readable
from tap_bridge.sending import until_the_target_ends
from tap_bridge.settings import CONFIG_JSONSCHEMA, log_of, unmatched_glob
from tap_bridge.stream import TableStream


class TapBridge(Tap):
    """Reads the tables and views of a lake, commit by commit."""

    name = "tap-bridge"
    package_name = "singer-bridge"
    config_jsonschema: ClassVar[dict[str, Any]] = deepcopy(CONFIG_JSONSCHEMA)  # the SDK adds settings of its own to it
    capabilities: ClassVar[list[CapabilitiesEnum]] = [
        TapCapabilities.CATALOG,
        TapCapabilities.DISCOVER,
        TapCapabilities.STATE,
        TapCapabilities.TEST,
        TapCapabilities.LOG_BASED,
        TapCapabilities.ACTIVATE_VERSION,
        PluginCapabilities.BATCH,
        PluginCapabilities.ABOUT,
        PluginCapabilities.STREAM_MAPS,
        PluginCapabilities.FLATTENING,
        PluginCapabilities.STRUCTURED_LOGGING,
    ]

    def __init__(self, *, state: Any = None, catalog: Any = None, **options: Any) -> None:
        if isinstance(catalog, dict) and not isinstance(catalog, singerlib.Catalog):
            catalog = catalog | {"streams": [_chosen(entry) for entry in catalog.get("streams", ())]}
        state = readable(state, self.logger)
        self._bookmarked = list[str](state.get("bookmarks", ()))
        super().__init__(state=state, catalog=catalog, **options)

    def discover_streams(self) -> list[TableStream]:
        """The tables and views of the last commit that a reader may see. Raises `SettingsError`.

        Of those that a rollback took back the ones with a bookmark, too: a target has their rows.
        """
        feed = ChangeFeed(log_of(self.config))
        tables = [*feed.streams, *feed.emptied]
        if tables and (glob := unmatched_glob(self.config, tables)):
            hint = did_you_mean(glob, tables) or f"there are: {', '.join(tables)}"
            raise SettingsError("settings for a table that the lake does not have", hint=hint, glob=f"streams.{glob}")
        emptied = [name for name in feed.emptied if name in self._bookmarked and feed.columns(name)]
        for name in self._bookmarked:
            if name not in (*feed.streams, *emptied):
                self.logger.warning("%s: the lake has no such table any more, so rows that were sent stay", name)
        return [TableStream(self, feed, name) for name in (*feed.streams, *emptied)]

    @classmethod
    def cb_config(cls, ctx: Any, param: Any, value: tuple[str, ...]) -> Any:
        """Read `--config`. Raises `SettingsError` for a file that is none, or has no settings."""
        try:
            return super().cb_config(ctx, param, value)
        except (OSError, TypeError, ValueError) as error:
            hint = 'it has settings in JSON, such as {"bucket": "./lake"}'
            raise SettingsError(f"--config: {error}", hint=hint, file=", ".join(value)) from error

    @classmethod
    def invoke(cls, *, state: Any = None, catalog: Any = None, **options: Any) -> None:
        """Run the tap. Raises `SettingsError` for a file that is no JSON; exits with 1 if the target ended."""
        with until_the_target_ends(cls.logger):
            super().invoke(state=_json("--state", state), catalog=_json("--catalog", catalog), **options)

    def _handle_termination(self, signum: int, frame: FrameType | None) -> None:
        """End at once: a STATE now could stand in the middle of a RECORD's line. The last one is written already."""
        raise SystemExit(128 + signum)


def _json(flag: str, file: IO[str] | None) -> IO[str] | None:
    """A file, read. Raises `SettingsError` unless it has an object of JSON."""
    if file is None:
        return None
    try:
        text = file.read()
        is_object = isinstance(json.loads(text), dict)
    except ValueError:
        is_object = False
    if not is_object:
        hint = (
            'a catalog is what --discover prints, a STATE {"bookmarks": {...}}: the `value` of a line that a tap wrote'
        )
        raise SettingsError(f"{flag}: this is no object of JSON", hint=hint, file=file.name)
    return io.StringIO(text)


def _chosen(entry: dict[str, Any]) -> dict[str, Any]:
    """A catalog's stream whose metadata counts, as in `singer-bridge run`: the SDK looks beside the schema first.

    Raises `SettingsError` for a replication method that is neither.
    """
    name = stream_id(entry)
    method = replication_method({"streams": [entry]}, name)
    if method not in (None, "LOG_BASED", "FULL_TABLE"):
        hint = "LOG_BASED sends what commits changed, FULL_TABLE the whole table in each run"
        raise SettingsError("tap-bridge does not know this replication method", hint=hint, stream=name, method=method)
    return entry | {"replication_method": method, "key_properties": key_properties(entry)}


def run() -> None:
    """Run the command line. A failure is logged, with what to do about it, and decides the exit code."""
    try:
        TapBridge.cli()
    except BridgeError as error:
        TapBridge.logger.error(plain(error.message))
        for line in error.hint.splitlines():
            TapBridge.logger.error("  %s", plain(line))
        sys.exit(error.exit_code)
