"""The database below a tap, asked what the tap does not say: its tables, columns, NULLs, digits, how many rows.

Enters: the tap's settings, SQL. Leaves: rows, or `NotAsked` with the reason. Every question has a time limit, and no
answer is ever a reason for a run to fail. PostgreSQL is asked through psycopg, MySQL and MariaDB through the driver of
the tap's own Python. Nothing is written, so a crash leaves nothing.

Read `source_database.py` first, then `columns.py`.
"""
