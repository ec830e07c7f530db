"""A pipeline as dlt's docs have a user write it for a table: `python dlt_sql.py DESTINATION DISPOSITION`."""

import sys
from pathlib import Path

import dlt
from dlt.sources.sql_database import sql_table

here = Path.cwd()
if sys.argv[1] == "filesystem":
    destination = dlt.destinations.filesystem(bucket_url=(here / "lake").as_uri())
else:
    destination = dlt.destinations.duckdb(str(here / "lake.duckdb"))
numbers = sql_table(
    credentials=(here / "url.txt").read_text(encoding="utf-8"),
    table="numbers",
    incremental=dlt.sources.incremental("id", initial_value=0),
    primary_key="id",
    write_disposition=sys.argv[2],
)
pipeline = dlt.pipeline("proof", destination=destination, dataset_name="proof", pipelines_dir=str(here / "pipelines"))
print(pipeline.run(numbers, loader_file_format="parquet"))
