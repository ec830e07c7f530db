"""The Singer protocol: messages, the catalog, selection, and what a STATE says.

Enters: bytes of a tap's stdout, a catalog, a STATE. Leaves: messages (RECORD lines stay bytes), streams with their keys
and replication, bookmarks of one stream. No file, no process, no setting is touched here.

A STATE is opaque: it is stored as the tap wrote it. `state.py` only reads what the Singer SDK's shapes say in it.
Read `messages.py` first.
"""
