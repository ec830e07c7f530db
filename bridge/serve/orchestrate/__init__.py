"""Other tools run the pipelines, or read what they loaded: Dagster, Airflow and dbt.

Enters: a `bridge.yaml`, or a lake. Leaves: assets, an operator, sources.

```
dagster.py      one asset a stream, on `bridge.Project`; read this first
airflow.py      an operator that runs `singer-bridge run` as a process; it needs nothing of the bridge but errors
dbt.py          sources.yml for DuckDB and Spark: `singer-bridge dbt sources`
dbt_duckdb.py   a plugin of dbt-duckdb: sources as the lake is when dbt runs
```
No module here is imported by another room but by its verb: the tools are not dependencies. A crash loses nothing: the
run is `bridge.load`'s.
"""
