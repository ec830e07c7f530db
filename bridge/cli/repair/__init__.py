"""Verbs that repair or tidy a lake: `rollback`, `compact`, `recover`, `verify`, `unlock`."""
