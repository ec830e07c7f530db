"""Changes that commits made to a table: rows that they added, rows that they changed, keys that they removed.

Enters: a pipeline's log, a commit up to which a reader has all rows. Leaves: parts of rows, in an order that depends on
the log alone, so a reader goes on after any row. Nothing is written, no lease is taken.

```
feed.py       which commits changed a table, and whether it has to be read as a whole; read this first
change.py     what one commit changed, and its rows
parts.py      rows of one commit, of one file each
diff.py       which rows of files that an upsert wrote again differ
json_text.py  Arrow to JSON, column by column
```
If a commit was undone, or is not kept any more, `feed.py` says so: then only the whole table loses nothing.
"""
