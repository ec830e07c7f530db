"""How a stream is stored: its load method and why, its folder, owner, keys and columns.

Enters: a stream's first SCHEMA, its catalog entry, the settings. Leaves: a `StreamProgress` and the columns that the
table has. Nothing is changed but the claim of a folder; `adopt.py` alone makes a commit, before the tap starts. Read
`table_plan.py` first. `views.py` builds what a commit changes in the views of a stream.
"""
