"""Checks the lake against its commit log: is what is in the bucket what the commits say? And repairs what it can.

```
report.py       findings of this room, and the report of them
history.py      the commits: none is missing, each can be read, the snapshots are right
files.py        the tables' folders     unpublished.py  what the last commit has yet to make visible
derived.py      what follows from the log: manifests, logs of Delta and Iceberg, STATE, streams, owners
check.py        all checks, made beside a run
mend.py         the repair, under the lease: recovery, then one commit and what follows from it
views.py        views against their SELECTs, in Spark: for `views verify`
```
Checking takes no lease and writes nothing. Read `check.py` first.
"""
