"""The demo's folder: just the files that a user of singer-bridge would write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from bridge.errors import TapError
from bridge.operate.demo.command import DemoProject

PIPELINE = "flights"
SCHEMA = "public"
REPLICATION_KEY = {f"{SCHEMA}-flights": "updated_at"}  # by stream; a stream without one is a FULL_TABLE

BRIDGE_YAML = """\
pipelines:
  {pipeline}:
    source:
      tap: tap-postgres
      pip_url: "meltanolabs-tap-postgres[msgspec]"
      config:
        sqlalchemy_url: "${{FLIGHTS_DATABASE_URL}}"   # in .env
        filter_schemas: [{schema}]
      catalog: catalog.json   # what to extract, and how
    destination:
      bucket: {bucket}
    commit: {{every: {every}}}   # so that there is something to see; the default is 5m
"""
BY_KEY = """\
    streams:
      {schema}-flights: {{load_method: upsert}}   # the tap repeats the row at the bookmark: the key makes it one
"""


def bridge_yaml(folder: Path, lake: Path, *, killed: bool = False) -> str:
    """The pipeline as YAML; the bucket is relative to the file, so that both can be moved together.

    `killed`: its runs are going to be.
    """
    bucket = orjson.dumps(os.path.relpath(lake, folder)).decode()  # every JSON string is a YAML string
    text = BRIDGE_YAML.format(pipeline=PIPELINE, schema=SCHEMA, bucket=bucket, every="1s" if killed else "5s")
    return text + BY_KEY.format(schema=SCHEMA) if killed else text


def write_project(folder: Path, url: str, pipeline: str) -> None:
    """Write bridge.yaml, the pipeline, and .env. Only its owner can read .env, as it holds the password."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bridge.yaml").write_text(pipeline)
    secret = folder / ".env"
    secret.unlink(missing_ok=True)
    secret.touch(mode=0o600)
    secret.write_text(f"FLIGHTS_DATABASE_URL='{url}'\n")


def choose_replication(project: DemoProject) -> None:
    """Write catalog.json: what the tap discovers, every stream selected, each with its replication method."""
    text = project.read("discover", PIPELINE, "--json")
    try:
        catalog = with_replication(orjson.loads(text))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise TapError("discover did not print a catalog", hint="run it by hand in the demo's folder") from error
    (project.folder / "catalog.json").write_bytes(orjson.dumps(catalog, option=orjson.OPT_INDENT_2))


def with_replication(catalog: dict[str, Any]) -> dict[str, Any]:
    """The catalog with every stream selected: INCREMENTAL if we know a replication key, otherwise FULL_TABLE."""
    return catalog | {"streams": [_selected(stream) for stream in catalog["streams"]]}


def _selected(stream: dict[str, Any]) -> dict[str, Any]:
    """Singer SDK taps read the method beside `metadata`, older taps inside it: both say the same."""
    key = REPLICATION_KEY.get(stream["tap_stream_id"])
    method = "INCREMENTAL" if key else "FULL_TABLE"
    facts = {"selected": True, "replication-method": method} | ({"replication-key": key} if key else {})
    metadata = [
        entry if entry["breadcrumb"] else entry | {"metadata": entry["metadata"] | facts}
        for entry in stream["metadata"]
    ]
    return stream | {"metadata": metadata, "replication_method": method} | ({"replication_key": key} if key else {})
