"""Dagster, Airflow and dbt, each from PyPI in a venv of its own, on real pipelines."""
