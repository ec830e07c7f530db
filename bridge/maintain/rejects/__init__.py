"""Rejects, afterwards: find them, read them, load those that fit by now, or delete them."""
