"""RECORD lines to Arrow columns: one row or one reject for each line, in the order of the lines.

Enters: a segment's bytes and the stream's columns. Leaves: an Arrow table, and the lines that do not fit, with reasons.

`exact.py` reads record by record, and is the judge: all readers must give the same rows and the same rejects. Values
are never guessed and never lose a digit. Where the compiled reader (`reader/`, in Rust) is installed, `native.py` has
it read what is plain, and `exact.py` the other lines. `arrow/` reads rows that came as Arrow, and leaves to `exact.py`
those that do not fit. Read `decoder.py`, then `exact.py`.
"""
