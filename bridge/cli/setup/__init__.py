"""Verbs that set up a project: `init`, `add`, `discover`, `select`, `install`, `config`, `doctor`, `completion`."""
