"""Checks that protect a table from doubled, lost or skipped rows: before a run, at each commit, and after the load."""
