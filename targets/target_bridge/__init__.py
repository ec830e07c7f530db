"""`target-bridge`, a Singer target: the engine of singer-bridge with the Singer SDK's command line and settings.

```
target.py     the SDK's Target, with one load instead of its loop    settings.py   config.json as a pipeline
origin.py     which STATE the tap was started with, as Meltano says   mapped.py     stream maps, flattening
```
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from target_bridge.target import TargetBridge

__all__ = ["TargetBridge", "main"]


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")  # as singer-bridge does, before Arrow is loaded

    from target_bridge.target import TargetBridge

    TargetBridge.cli()


def __getattr__(name: str) -> Any:
    """Import the target only when it is used: the SDK takes long to import."""
    if name == "TargetBridge":
        from target_bridge.target import TargetBridge

        return TargetBridge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
