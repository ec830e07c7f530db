"""Does this tap work? Checks its protocol message by message, in a few short runs that leave nothing behind.

```
trial.py     the runs: discovery, three syncs, a broken config, a SIGTERM
listener.py  what the tap sent in one of them, and what is wrong with it
catalogs.py  what is wrong with a catalog     golden.py  what changed since a schema was written down
verdicts.py  the result of each check         reports.py JUnit, GitHub
loading.py   the same tap through the real engine
```
Read `trial.py` first.
"""
