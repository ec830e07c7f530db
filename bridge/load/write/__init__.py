"""Arrow to pending Parquet files. Runs on Spark's executors; knows nothing of commits.

Enters: a bundle of segments, a stream's columns and layout. Leaves: pending files, which no reader sees, reject files,
and a report that counts every line (`report.py`). Rows of an upsert leave as spills, which `merge/` brings into the
table by key.

After a crash pending files stay behind; the next run's recovery deletes those that no commit names.
Read `task.py`, then `writer.py`.
"""
