"""Start runs and tell of them: for a program, on a schedule, for an orchestrator.

```
launch/       one pipeline with its retries, and `bridge.Project`
facts/        what a run changed, told once: notifications, metrics, lineage
service/      `singer-bridge serve`: schedules, runs, the page and the HTTP API
orchestrate/  Dagster, Airflow and dbt on our pipelines
```
All state is in the bucket: after a crash the next start looks there for what was missed.
"""

DOORS = """
facts.after_run launch.launch orchestrate.dbt service.assignment service.client service.runners service.service
service.web.server
""".split()
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""
