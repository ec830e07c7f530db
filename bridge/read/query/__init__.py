"""Ask the lake: tables and views exactly at a commit, by the commit log and never by listing, from Python and by SQL.

Enters: a bucket, a pipeline's name, a question. Leaves: Arrow data, or a row. Nothing is written, no lease is taken.

```
lake.py      `bridge.Lake`; read this first
snapshot.py  which commit a reader may see, and its tables as Arrow datasets; follow.py: the next one, cheaply
files.py     opens a file of a commit where it is now: in its table's folder, or in the trash of a later commit
view.py      a row of a view by its key; keys.py: what is a key; lookup.py: in which row group it is
system.py    what `bridge.runs`, `bridge.commits` and the other system tables hold
growth.py    rows and bytes after each of the latest commits
engine.py    DuckDB over all of that, without access to anything else
```
A reader sees a commit when all its files are visible, and from then on exactly the files that the log names, whatever
later commits move away while it reads.
"""
