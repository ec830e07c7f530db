"""`doctor`: everything that a run needs, looked at before it is needed; one room a place where it can be missing."""
