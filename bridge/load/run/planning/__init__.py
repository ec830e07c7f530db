"""Decisions before a run: with which STATE and in which processes the tap starts, and what a run would do.

Nothing here writes to the bucket. `dry_run.py` is `run --dry-run`; read it first.
"""
