"""Taps from PyPI over servers that Maven has: what is in the lake is what another client reads."""
