"""Bookmarks for operators and programs: read them, change them, exchange them with other tools.

Each change is a commit under the pipeline's lease, so it is never lost and never half done. `store.py` is the public
`bridge.StateStore`; `exchange/` has a file for each tool whose STATE we read and write. Read `store.py` first.
"""
