"""A project as the examples of the help suppose it: two pipelines, a tap that one has to know, files beside them."""

from __future__ import annotations

import json
from pathlib import Path

_SETTINGS = """\
environments:
  prod: {}
  staging: {}
pipelines:
  flights:
    source:
      tap: tap-smoke
      select: ["*"]
      config:
        seed: 1
        state: {every: 10}
        streams:
          - {name: public-flights, records: 30}
          - {name: public-users, records: 20}
          - {name: public-orders, records: 10}
    destination: {bucket: lake}
    mask_key: the key of an example
    views:
      by_active: SELECT active, count(*) AS flights FROM `public-flights` GROUP BY active
    schedule: {cron: "0 */2 * * *"}
  flights_v2:
    source: {tap: tap-smoke, config: {seed: 1, streams: [{name: public-flights, records: 30}]}}
    destination: {bucket: lake}
"""

_STATE = {"bookmarks": {"public-users": {"replication_key": "id", "replication_key_value": 5}}}

_FILES = {
    "bridge.yaml": _SETTINGS,
    "config.json": json.dumps({"seed": 1, "streams": [{"name": "users", "records": 10}]}),
    "state.json": json.dumps(_STATE),
    "partial.json": json.dumps(_STATE),
}

_PROGRAMS = {
    "tap-x": 'test "$1" = --flag && shift\nexec tap-smoke "$@"\n',
    "crontab": 'case "$1" in -l) cat ~/crontab ;; -) cat > ~/crontab ;; *) cat "$1" > ~/crontab ;; esac\n',
    "bookmark-editor": "sed -i 's/20/15/' \"$1\"\n",
}

_OLAKE = {"stream": "users", "namespace": "public", "sync_mode": "", "state": {"chunks": [], "id": 5}}

EXTRA: dict[str, dict[str, str]] = {
    "--format meltano": {"state.json": json.dumps({"singer_state": _STATE})},
    "--format olake": {"olake/state.json": json.dumps({"type": "STREAM", "version": 7, "streams": [_OLAKE]})},
    "--key-file left.txt": {"left.txt": "3\n7\n"},
    "-o models/": {"models/summary.sql": "select 1"},
}
"""Files that an example with these words reads, or finds beside what it writes."""

BEFORE = {"--from-env staging": "state set flights state.json --env staging --yes"}
"""What has to be typed before an example with these words."""


def make_project(folder: Path) -> None:
    """Write the project."""
    (folder / "bin").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "home" / "crontab").write_text("")
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    for name, text in _PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (folder / "bin" / name).chmod(0o755)
