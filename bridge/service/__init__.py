"""`singer-bridge serve`: what a team leaves running. It runs pipelines when their schedules say so.

Enters: bridge.yaml, read anew whenever it changes. Leaves: runs, each in processes of its own.

```
runs.py      start, stop and look at runs: what the page calls; read this first
```
The service has no state of its own: the bucket says what ran. If it is killed, its runs end as a killed `run` does, and
the next start looks in the run records for what was missed.
"""
