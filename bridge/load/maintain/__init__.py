"""Verbs that change a lake's tables without a tap: compact, rejects, resets.

Each takes the pipeline's lease and makes its own commit: after a crash the lake is in the state before or after it.
Read `compact.py` first.
"""
