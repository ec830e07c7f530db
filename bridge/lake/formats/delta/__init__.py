"""Delta tables: the next entry of a table's log, by put-if-absent, and its files' statistics. Read `log.py` first."""
