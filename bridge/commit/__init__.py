"""The one writer of a pipeline's commit log: opening, committing, publishing, undoing. Never imports Arrow.

Enters: pending files and the STATE that covers them. Leaves: a numbered commit, files that readers see, `state.json`.

After a crash between any two steps the next opening repairs: it publishes what the last commit named, or takes the
commit back if a file of it is lost. `rollback.py` and `retention.py` are commits of their own kind.
Read the docstring of `committer.py` first: the whole protocol stands there.
"""
