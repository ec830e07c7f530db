"""Table formats that have a log of their own (`destination.format`): Delta and Iceberg.

```
protocol.py   what the log of each format can do; read it first
registry.py   which formats there are, which package each needs, and the logs of one pipeline's tables
delta/        log.py creates the log's next entry by put-if-absent; stats.py: statistics
iceberg/      table.py commits the next snapshot by the catalog's compare-and-swap; columns.py, layout.py, manifests.py:
              what is in it; catalog.py: where it is registered; io.py: how pyiceberg reads and writes in the bucket
file_notes.py how a file is sorted, and what its footer lacks, noted by its writer in the file
footer.py     takes out of a footer what misleads readers: bounds of a column with NaN
```
Our commit log stays the truth: after each commit, `publish` makes the table's own log name the same files, in one step.
"""
