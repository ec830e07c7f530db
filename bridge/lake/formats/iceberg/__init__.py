"""Iceberg tables: commits the next snapshot by the compare-and-swap of the table's catalog. Read `table.py` first."""
