"""`tap-bridge`, a Singer tap: the tables and views of a lake for any target, with the Singer SDK's command line.

```
tap.py       the SDK's Tap                     stream.py     one table: what is due, and where it stands
settings.py  config.json as a lake             bookmark.py   a commit, and a place in the one after it
sending.py   rows as RECORD lines, many at once  batches.py    rows as files of Arrow, and BATCH
```
Unlike the other taps it imports the bridge: a lake is what it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tap_bridge.tap import TapBridge

__all__ = ["TapBridge", "main"]


def main() -> None:
    """Run the command line."""
    from tap_bridge.tap import run

    run()


def __getattr__(name: str) -> Any:
    """Import the tap only when it is used: the SDK takes long to import."""
    if name == "TapBridge":
        from tap_bridge.tap import TapBridge

        return TapBridge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
