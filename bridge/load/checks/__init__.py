"""What keeps a run from doubling, emptying or skipping rows: before it, at each commit, and after it."""
