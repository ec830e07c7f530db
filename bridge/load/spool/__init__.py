"""RECORD lines between the tap and Spark, in files on this machine.

Enters: RECORD lines of a stream under one SCHEMA. Leaves: sealed segments, listed in numbered batches that Spark reads.
After a crash the spool is worthless: the next run deletes it and the tap sends everything since the last commit again.
"""
