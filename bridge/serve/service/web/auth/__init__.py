"""Authentication of the page: who may come in, and what another site must not make a browser do.

`guard.py` sees each request first, by the rules of `access.py`.
"""
