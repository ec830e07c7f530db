"""singer-bridge: run any Singer tap into a lakehouse, exactly once, on Spark.

**The promise.** A bookmark never leads its data, and no row that a committed STATE covers is in the lake twice. Kill
any process at any instant and run again: each record is there once, each bookmark is one that the tap itself said.

**The flow**, one room a station (ARCHITECTURE.md has the whole map):

```
tap ──▶ singer ──▶ load ──▶ spool ──▶ spark ──▶ decode ──▶ write ──▶ load ──▶ commit
stdout  messages   dispatch segments            Arrow      pending   adds up? visible, with its STATE
```

**The words.** *Segment*: consecutive RECORD lines of one stream under one schema. *Barrier*: a STATE at which we choose
to commit, or the tap's clean end. *Epoch*: what lies between two barriers. *Pending*: durable, not visible yet.
*Held*, *staged*: pending past a barrier, as the stream cannot resume there, or as an overwrite is not complete.
*Commit*: the numbered record that makes files visible together with a STATE. *Generation*: the number that opened a
run and is part of every file name. *Reject*: what cannot be stored as its schema says, kept with its reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.settings.values.s3options import S3Options
    from bridge.state.store import StateStore

__all__ = ["S3Options", "StateStore", "__version__"]

__version__ = "0.1.0"

_PUBLIC = {"S3Options": "bridge.settings.values.s3options", "StateStore": "bridge.state.store"}


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: `import bridge` alone stays light."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
