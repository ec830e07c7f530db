"""JSON Schema to a table's columns, and how columns change.

Enters: a SCHEMA message, and the columns that a table has. Leaves: Arrow fields whose metadata says what the type does
not. `quick_rules.py` holds a record against its SCHEMA; every other value is read by `decode`.

`json_schema.py` maps one SCHEMA, `merging.py` joins it to the table's columns, `widening.py` says what a changed type
becomes. Read `table_schema.py` first.
"""
