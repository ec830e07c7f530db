"""Verbs that run pipelines: `run`, `serve`, `schedule`, `smoke`, `demo`."""
