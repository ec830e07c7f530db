"""Verbs that start a tap: `run`, `smoke`, `demo`."""
