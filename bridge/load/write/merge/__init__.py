"""Merges rows into a table by key: the last row of a key wins, over other new rows and the table's. Copy on write.

At a barrier the rows of an upsert are in spills (`../spill.py`). `plan.py` cuts them into ranges of keys. For each
range `match.py` keeps the last row of each key, finds the live files with these keys, and writes the rows with new keys
to new files. `rewrite.py` then rewrites each live file in which rows are replaced or removed. `footers.py` tells which
files can hold a key, `winners.py` which row of a key wins, `../keys.py` compares keys.

Guarantee: memory holds a range and a row group, however large the table is. Nothing changes before the commit that
names the new files. If the counts do not add up, there is no commit.
"""
