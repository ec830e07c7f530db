"""Values that are masked before anything is written: RECORD lines in, RECORD lines out, and the SCHEMA that fits them.

What enters is the settings' `mask`, and lines and SCHEMAs as the tap wrote them. What leaves has no raw value of a
masked field, also in lines that are damaged: of those only their length stays. Nothing is kept here but counts.
Read first: `rules.py`.
"""
