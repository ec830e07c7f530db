"""Kills at every step and at random moments, and what must hold afterwards. See README.md beside this file."""
