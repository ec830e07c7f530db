"""The Singer SDK's command line and settings around the streams of a lake."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any, ClassVar

from singer_sdk import Tap, singerlib
from singer_sdk.helpers.capabilities import CapabilitiesEnum, PluginCapabilities, TapCapabilities

from bridge.cli.plain import plain
from bridge.errors import BridgeError
from bridge.query.changes.feed import ChangeFeed
from bridge.singer.catalog import key_properties, replication_method, stream_id
from tap_bridge.bookmark import readable
from tap_bridge.settings import CONFIG_JSONSCHEMA, log_of
from tap_bridge.stream import TableStream


class TapBridge(Tap):
    """Reads the tables and views of a lake, commit by commit."""

    name = "tap-bridge"
    package_name = "singer-bridge"
    config_jsonschema: ClassVar[dict[str, Any]] = CONFIG_JSONSCHEMA
    capabilities: ClassVar[list[CapabilitiesEnum]] = [
        TapCapabilities.CATALOG,
        TapCapabilities.DISCOVER,
        TapCapabilities.STATE,
        TapCapabilities.TEST,
        TapCapabilities.LOG_BASED,
        TapCapabilities.ACTIVATE_VERSION,
        PluginCapabilities.ABOUT,
        PluginCapabilities.STREAM_MAPS,
        PluginCapabilities.FLATTENING,
        PluginCapabilities.STRUCTURED_LOGGING,
    ]

    def __init__(self, *, state: Any = None, catalog: Any = None, **options: Any) -> None:
        if isinstance(catalog, dict) and not isinstance(catalog, singerlib.Catalog):
            catalog = catalog | {"streams": [_chosen(entry) for entry in catalog.get("streams", ())]}
        state = readable(state, self.logger)
        self._known = list[str](state.get("bookmarks", ()))
        super().__init__(state=state, catalog=catalog, **options)

    def discover_streams(self) -> list[TableStream]:
        """The tables and views of the last commit that a reader may see.

        Of those that a rollback took back the ones with a bookmark, too: a target has their rows.
        """
        feed = ChangeFeed(log_of(self.config))
        emptied = [name for name in feed.emptied if name in self._known and feed.columns(name)]
        for name in self._known:
            if name not in (*feed.streams, *emptied):
                self.logger.warning("%s: the lake has no such table any more, so rows that were sent stay", name)
        return [TableStream(self, feed, name) for name in (*feed.streams, *emptied)]

    def _handle_termination(self, signum: int, frame: FrameType | None) -> None:
        """End at once: a STATE now could stand in the middle of a RECORD's line. The last one is written already."""
        raise SystemExit(128 + signum)


def _chosen(entry: dict[str, Any]) -> dict[str, Any]:
    """A catalog's stream whose metadata counts, as in `singer-bridge run`: the SDK looks beside the schema first."""
    method = replication_method({"streams": [entry]}, stream_id(entry))
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
    except BrokenPipeError:
        TapBridge.logger.error("The target ended before the tap")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it ends
        sys.exit(1)
