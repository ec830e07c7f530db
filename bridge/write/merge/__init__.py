"""Rows into a table by key: the last one wins, in its batch and against the table. Copy on write, on executors.

At a barrier a stream's rows wait as *spills* (`tables.spill`) in the spool. `plan` cuts them into ranges of keys; for
each range `match` keeps the last row of each key, finds the live files that hold these keys, and writes those that no
file holds to new files; `rewrite` then writes each file anew in which rows are replaced or go, one to one. `footers`
tells which files can hold a key at all, `fold` who wins, `keys` compares keys as the protocol means them.

Guarantee: memory holds a range and a row group, whatever the size of table and batch; nothing is visible, nothing gone
before the commit that names these files. The counts add up or there is no commit.
"""

from __future__ import annotations
