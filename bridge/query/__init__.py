"""Ask the lake: tables exactly at a commit, by the commit log and never by listing, from Python and by SQL.

Enters: a bucket, the name of a pipeline, a question. Leaves: Arrow data. Nothing is ever written.

```
lake.py      `bridge.Lake`; read this first
snapshot.py  which commit a reader may see, and its tables as Arrow datasets
files.py     opens a file of a commit where it is now: in its table's folder, or in the trash of a later commit
system.py    what `bridge.runs`, `bridge.commits` and the other system tables hold
engine.py    DuckDB over all of that, without access to anything else
```
A reader takes no lease and leaves no trace. It sees a commit when all its files are visible, and from then on exactly
the files that the log names, whatever later commits move away while it reads.
"""
