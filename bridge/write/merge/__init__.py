"""Rows into a table by key: the last row of a key wins, among the new rows and against the table's. Copy on write.

At a barrier a stream's rows wait as spills (`write/spill.py`). `plan.py` cuts them into ranges of keys. For each range
`match.py` keeps the last row of each key, finds the live files with these keys, and writes the rows that no file has to
new files. `rewrite.py` then rewrites each file in which rows are replaced or removed, one to one. `footers.py` tells
which files can hold a key at all, `winners.py` which row of a key wins, `../keys.py` compares keys.

Guarantee: memory holds a range and a row group, however large the table; nothing changes before the commit that names
these files. The counts add up or there is no commit.
"""
