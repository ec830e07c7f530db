"""One run, from the first version of its record to the last: the only place where the parts are wired together.

Enters: a pipeline's settings. Leaves: commits, and a `Result`. A crash loses nothing: all state here is in memory or in
the scratch folder, and the next run starts from the last commit.

`streams` has the plan of each stream. `tap_reader` reads, `dispatcher` sorts messages and yields events, `barriers`
decides what a STATE covers, `loader` hands sealed batches to Spark and takes finished ones back, `accounting` checks
that rows + rejects + filtered = lines, `table_changes` builds what the commit says. `tables/` says where a stream is
stored, with which columns; `checks/` refuses runs that would double or empty a table. Read `run.py`, which has
`planning/run_plan.py` say what to do and `execution.py` do it; then
`tap_reader.py`, then `loader.py`.
"""
