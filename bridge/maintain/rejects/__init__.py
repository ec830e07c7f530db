"""What could not be stored, afterwards: find it, read it, load what fits by now, or delete it."""
