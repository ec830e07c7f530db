"""A folder as a lake: durable by fsync, atomic by rename, link and exchange. Read `storage.py` first."""
