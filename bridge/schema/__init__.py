"""JSON Schema to a table's columns, and how columns change.

Enters: a SCHEMA message, and the columns that a table has. Leaves: Arrow fields, each with its JSON Schema kept beside
it. No value of any column is looked at here; `decode` does that.

`json_schema.py` maps one SCHEMA, `merging.py` joins it to the table's columns, `widening.py` says what a changed type
becomes. Read `table_schema.py` first.
"""
