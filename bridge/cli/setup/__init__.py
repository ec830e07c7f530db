"""Verbs that set up a project: `init`, `add`, `discover`, `select`, `config`, `doctor`, `install`, `schedule`."""
