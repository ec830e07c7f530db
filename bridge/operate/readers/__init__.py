"""The statement, or the code, by which an engine reads a table; and the history of a table's columns.

What enters: a table's columns and place. What leaves: text to paste; no secret is in it. Nothing is read or written.
Read `ddl.py` first.
"""
