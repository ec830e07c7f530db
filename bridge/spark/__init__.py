"""Spark, in the only room that imports pyspark: a session with a JVM of its own, a query that loads sealed batches.

Enters: sealed batches, through `query.Engine`. Leaves: finished ones, with the reports of the workers, in a queue. A
crash loses nothing here: Spark's checkpoint is scratch. The workers' half is `worker.py`. Read `query.py` first.
"""
