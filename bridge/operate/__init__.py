"""Verbs of operators on a lake besides loading it: compact, rejects, verify, doctor, and statements for readers.

A verb that writes takes the pipeline's lease and makes its own commit: after a crash the lake is in the state before or
after it. A verb that only looks takes no lease and writes nothing. Read `compact.py` for one that writes,
`verify/check.py` for one that looks.
"""
