"""Records that a tap sent as Arrow: to a table's columns without JSON.

```
plain.py   record batches of any types as rows in a few plain ones, in pieces
pieces.py  pieces on their way through the spool, and what a table makes of them; read it first
mapped.py  a plain column as a table's column, or a refusal
rows.py    plain rows as JSON lines: for rows that were refused, and for rules that need a line
```
"""
