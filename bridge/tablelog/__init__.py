"""Tables that have a log of their own for readers: `destination.format`. Each commit of ours is one of the table's.

```
kinds.py    which formats there are, what they need, and the tables' logs of one pipeline
delta.py    a Delta table: its log's next entry, put where no other is      stats.py    what its files hold at least
access.py   how the libraries that read such logs reach the bucket
```
Our commit log is the truth here, too: `publish` makes a table's own log name the files that ours does, in one step.
"""
