"""Where bytes live: one small protocol (`protocol.py`), one folder a backend.

Enters: keys and bytes. Leaves: durable files; `publish` makes them visible. `buckets.py` picks the backend by URI.
"""

from bridge.lake.storage.buckets import lake_of, open_storage
from bridge.lake.storage.protocol import Add, Change, Missing, Remove, Rewrite, Storage

__all__ = ["Add", "Change", "Missing", "Remove", "Rewrite", "Storage", "lake_of", "open_storage"]
