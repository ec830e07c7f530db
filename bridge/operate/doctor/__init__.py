"""`doctor`: checks everything that a run needs, before a run needs it. There is one file for each place to look at.

What enters: settings, the bucket, the tap's program. What leaves: findings, each with what to do. Nothing is kept.
"""
