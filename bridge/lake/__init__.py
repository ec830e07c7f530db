"""The contents of a lake's bucket beside the rows of its tables: the commit log, and what is derived from it.

Enters and leaves: bytes of a `Storage`. The commit log, `.bridge/<pipeline>/commits/<n>.json`, is the only truth about
files and STATE; all else here can be made again from it.

`records.py` says what is in a commit, field by field: read it first. `log.py` reads and creates commits, `lease/` says
who may write, `formats/` holds the logs that Delta and Iceberg tables have of their own. `runs.py` has the record of
each run, `run_status.py` says how a run stands that has not ended.
"""

DOORS = """
bucket_checks commit.committer commit.manifests commit.open commit.retention
commit.rollback commit.state_file commit.trail formats.file_notes formats.footer formats.iceberg.catalog
file_records formats.registry lease lease.process log ownership paths pipeline_state presence reconciled
records run_status runs schemas state.exchange state.exchange.foreign state.history state.lookback state.store storage
storage.azure.store storage.local.folders storage.objects storage.parallel stream_files table_columns
times
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
