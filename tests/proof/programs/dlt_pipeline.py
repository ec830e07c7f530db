"""A pipeline as dlt's docs have a user write it: `python dlt_pipeline.py DESTINATION DISPOSITION`, in its folder."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt

CURSOR = dlt.sources.incremental("id", initial_value=0)


@dlt.resource(name="numbers", primary_key="id", write_disposition=sys.argv[2])
def numbers(last: Any = CURSOR) -> Iterator[list[dict[str, Any]]]:
    """The tap's records behind the cursor, a page for each STATE of the tap."""
    state = {"bookmarks": {"numbers": {"replication_key": "id", "replication_key_value": last.start_value or 0}}}
    Path("dlt_state.json").write_text(json.dumps(state), encoding="utf-8")
    command = ["./tap-numbers", "--config", "tap.json", "--state", "dlt_state.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tap:
        page: list[dict[str, Any]] = []
        for line in tap.stdout or ():
            message = json.loads(line)
            if message["type"] == "RECORD":
                page.append(message["record"])
            elif message["type"] == "STATE" and page:
                yield page
                page = []
    if tap.returncode:
        raise RuntimeError(f"the tap failed: {tap.returncode}")


here = Path.cwd()
if sys.argv[1] == "filesystem":
    destination = dlt.destinations.filesystem(bucket_url=(here / "lake").as_uri())
else:
    destination = dlt.destinations.duckdb(str(here / "lake.duckdb"))
pipeline = dlt.pipeline("proof", destination=destination, dataset_name="proof", pipelines_dir=str(here / "pipelines"))
print(pipeline.run(numbers(), loader_file_format="parquet"))
