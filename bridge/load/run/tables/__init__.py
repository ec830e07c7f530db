"""How a stream is stored: its folder, owner and columns.

Enters: a stream's plan and its first SCHEMA. Leaves: a `StreamProgress` and the columns that the
table has. Nothing is changed but the claim of a folder; `adopt.py` alone makes a commit, before the tap starts. Read
`table_plan.py` first. `views.py` builds what a commit changes in the views of a stream.
"""
