"""Checks of `doctor` that try what a run needs: this machine, the tap, PostgreSQL's log.

Enters: settings. Leaves: findings, each with what to do. Nothing is kept: a tap is started for `--about` and
`--discover` only. Read `tap.py` first.
"""
