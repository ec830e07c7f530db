"""Where bytes live: one small protocol, one file a backend."""

from bridge.storage.buckets import lake_of, open_storage
from bridge.storage.protocol import Add, Change, Missing, Remove, Rewrite, Storage, leads_out

__all__ = ["Add", "Change", "Missing", "Remove", "Rewrite", "Storage", "lake_of", "leads_out", "open_storage"]
