"""The lake against its log: whether what is in the bucket is what the commits say, and what can be mended.

```
finding.py   one thing that is wrong: what it means, what to do, and how it is mended, if nothing need be guessed
history.py   the commits: none missing, each readable, snapshots right          files.py    the tables' folders
derived.py   what is derived from the log: manifests, STATE, streams, owners    check.py    all of it, beside a run
mend.py      the repair: recovery, then one commit and what is derived, under the lease
```
Looking takes no lease and writes nothing.
"""
