"""Verbs that look at a lake: `status`, `runs`, `commits`, `tables`, `views`, `sql`, `rejects`."""
