"""The only code that writes a pipeline's commit log: it opens, commits, publishes and rolls back. Never imports Arrow.

Enters: pending files and the STATE that covers them. Leaves: a numbered commit, files that readers see, `state.json`.

After a crash between any two steps the next opening repairs the lake: it publishes the files that the last commit
names, or takes that commit back if one of them is lost. `rollback.py` makes commits of a kind of their own,
`retention.py` deletes what is too old. Read the docstring of `committer.py` first: it describes the whole protocol.
"""
