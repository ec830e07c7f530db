"""Does this tap work? Its protocol checked message by message, in a few short runs that leave nothing behind.

```
trial.py     the runs: discovery, three syncs, a broken config, a SIGTERM
listener.py  what the tap said in one of them, and what is wrong with that
catalogs.py  what is wrong with a catalog     golden.py  what changed since a schema was written down
verdicts.py  what came of each check          reports.py JUnit, GitHub
```
"""
