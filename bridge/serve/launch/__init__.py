"""Start runs: for a program (`bridge.Project`) and for the command line, in one way.

Enters: a pipeline's settings and what is requested of the run. Leaves: a `Result`.

```
project.py        `bridge.Project`; read this first
launch.py         one pipeline with its retries: starts every run that `bridge.yaml` describes
system_tables.py  after each run: runs, commits, bookmarks and streams as Parquet tables of the lake
```
A crash here loses nothing: a run's own record is written by `bridge.load`, and the system tables are made from the
commit log and the run records. The next run brings them up to date.
"""
