"""What operators do to a lake beside running: compact, rejects, verify, doctor, and statements for readers.

What writes takes the pipeline's lease and makes a commit of its own; what only looks takes no lease and writes nothing.
"""
