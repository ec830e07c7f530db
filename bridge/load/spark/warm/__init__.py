"""A session that is made before its run: JVM up, workers started, the way of a batch walked once.

```
ahead.py      make one, keep it, hand it to the run that needs such a session
rehearsal.py  what it does before, so that the first real batch finds all code loaded
```
It belongs to one process and is used by one run, which ends it. A run whose settings need another session makes its
own.
"""
