"""Tables that have a log of their own for readers: `destination.format`. Each commit of ours is one of the table's.

```
kinds.py      which formats there are, what they need, and the tables' logs of one pipeline
ownlog.py     what each of them can do
delta.py      a Delta table: its log's next entry, put where no other is      stats.py    what its files hold at least
unsaid.py     what a Parquet footer leaves out       misleading.py  files that an older version's statistics hide
iceberg.py    an Iceberg table: its next snapshot, by a compare-and-swap of its catalog
fields.py     its columns, each with a number            manifests.py  its files, in the metadata of a snapshot
catalogs.py   where its catalog is                       bucketio.py   how pyiceberg reads and writes in the bucket
```
Our commit log is the truth here, too: `publish` makes a table's own log name the files that ours does, in one step.
"""
