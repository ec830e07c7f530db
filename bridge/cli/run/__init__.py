"""Verbs that run pipelines: `run`, `schedule`, `smoke`, `demo`."""
