"""Rejects after a run: find them, read them, load those that fit by now, or delete them."""
