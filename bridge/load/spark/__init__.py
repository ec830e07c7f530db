"""Spark, in the only room of a run that imports pyspark: a session with its JVM, a query that loads sealed batches.

Enters: sealed batches, through `query.Engine`. Leaves: finished ones, with the reports of the workers, in a queue. A
crash loses nothing here: Spark's checkpoint is scratch. The workers' half is `worker.py`. Read `query.py` first.
"""
