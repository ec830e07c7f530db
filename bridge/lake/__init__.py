"""The contents of a lake's bucket beside the rows of its tables: the commit log, and what is derived from it.

Enters and leaves: bytes of a `Storage`. The commit log, `.bridge/<pipeline>/commits/<n>.json`, is the only truth about
files and STATE; all else here can be made again from it.

`records.py` says what is in a commit, field by field: read it first. `log.py` reads and creates commits, `lease/` says
who may write, `formats/` holds the logs that Delta and Iceberg tables have of their own. `runs.py` has the record of
each run, `run_status.py` says how a run stands that has not ended.
"""
