"""`singer-bridge serve`: what a team leaves running. It runs pipelines when their schedules say so.

Enters: bridge.yaml, read anew whenever it changes. Leaves: runs, each in processes of its own.

```
runs.py          start, stop and look at runs: what a page calls; service.py: the loop; read these first
timetable.py     when each pipeline is due; past_runs.py: what was missed, by the run records
run_queue.py     runs that wait, and runs under way; runner.py: the process of one run
clock.py         what only the clock shows of a pipeline: it is stale, its run died
bucket_pool.py   threads that look at buckets, for which nobody waits
current_settings.py  bridge.yaml as it is, or as it was when it was last right
web/             the page and the HTTP API; client.py asks it
```
The service has no state of its own: the bucket says what ran. If it is killed, its runs end as a killed `run` does, and
the next start looks in the run records for what was missed.
"""
