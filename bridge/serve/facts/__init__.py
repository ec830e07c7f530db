"""Facts of a pipeline, each told once: to people (apprise), to Prometheus, to OpenLineage.

Enters: the run records and the commit log. Leaves: messages to the receivers that bridge.yaml names.

```
after_run.py  what happens after a run, and at each look at the clock: each receiver in a thread; read this first
facts.py      which facts are new: a run beside the run before it; stale or dead pipelines
lineage.py    OpenLineage events
metrics.py    Prometheus: a text, and a file for node_exporter
```
All of it comes after the run's last commit and changes nothing in the lake. A crash here loses messages, never rows.
"""
