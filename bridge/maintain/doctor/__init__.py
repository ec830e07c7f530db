"""`doctor`: checks all that a run needs before a run needs it. One file for each place where something can be missing.

What enters: settings, the bucket, the tap's program. What leaves: findings, each with what to do. Nothing is kept.
"""
