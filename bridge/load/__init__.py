"""Load rows: one run, and everything that only a run uses; and what rewrites a lake's tables later.

```
run/       one run: the only place where the parts are wired together; read run/run.py first
tap/       one tap process: its venv, settings, catalog, STATE, stdout and stderr; questions to its database
spool/     RECORD lines between tap and Spark, in files on this machine
write/     Arrow to pending Parquet files, on Spark's executors; merge by key
slots/     PostgreSQL's replication slot, which moves only behind a commit; binlogs
views/     the GROUP BY of a stream as a table: SQL that adds and takes away rows
spark/     the session and the streaming query; no other room of a run imports pyspark
preflight/ checks of `doctor` that try what a run needs
maintain/  compact, forget, rejects, resets: verbs that write as a run does, without a tap
```
"""

DOORS = """
maintain.compact maintain.corrections maintain.forget.forget maintain.rejects.purge maintain.rejects.replay
maintain.rejects.survey maintain.resets maintain.view_check preflight.machine preflight.tap run.checks.setback
run.checks.view_outlook
run.last_commit run.planning.dry_run run.result run.run run.scratch run.stop run.streams run.tables.catalog_columns
run.trace
slots.log_ready spark.jvm.archive_maker spark.shipping spark.types tap.about tap.batch_files
tap.catalog_overrides tap.catalog_store tap.database.columns tap.process tap.slot_source tap.source
tap.stdin tap.venv write.merge.footers
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
