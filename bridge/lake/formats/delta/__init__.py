"""Delta tables: creates the next entry of a table's log by put-if-absent, with statistics of its files.

Read `log.py` first.
"""
