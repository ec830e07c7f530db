"""One run, from the lease to the run record: the only place where the parts are wired together.

Enters: a pipeline's settings. Leaves: commits, and a `Result`. After a crash nothing here matters: all of it lives in
memory and in the scratch folder, and the next run starts from the last commit.

The way of a message: `tap_reader` reads, `dispatcher` sorts, `barriers` decides what a STATE covers, `loader` seals the
batch for Spark, `accounting` checks that rows + rejects + filtered = lines, then the commit. `table_plan` and
`column_plan` say where and how a stream is stored. `checks/` refuses runs that would double or empty a table.
Read `run.py`, then `loader.py`.
"""
