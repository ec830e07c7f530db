"""Verbs that only look: `status`, `runs`, `commits`, `tables`, `rejects`."""
