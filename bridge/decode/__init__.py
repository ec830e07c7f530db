"""RECORD lines to Arrow columns: one row or one reject for each line, in the order of the lines.

Enters: a segment's bytes and the stream's columns. Leaves: an Arrow table, and the lines that do not fit, with reasons.

`decoder.py` is the fast path: Arrow reads a whole block. Where Arrow refuses or would guess, `exact.py` reads record by
record, and it is the judge: both must give the same rows and the same rejects. Values are never guessed and never lose
a digit. Read `decoder.py`, then `exact.py`.
"""
