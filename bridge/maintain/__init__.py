"""What operators do to a lake beside running: compact, rejects, verify, doctor, and statements for readers.

What writes takes the pipeline's lease and makes its own commit: after a crash the lake is as before, or as after it.
What only looks takes no lease and writes nothing. Read `compact.py` for a verb that writes, `verify/check.py` for one
that looks.
"""
