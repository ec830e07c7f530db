"""The main job on real data, in a minute: a PostgreSQL with a year of flights, the real tap, two runs, one question.

```
story.py      the steps in their order, told and checked; read it first
database.py   a private PostgreSQL for the length of a block (guard.py stops it even if we are killed)
flights.py    what is in it, and what changes between the runs
project.py    the folder that a user would have: bridge.yaml, .env, catalog.json
command.py    `singer-bridge ...` as a user types it: the demo uses the product only from outside
kill.py       `--kill`: runs are killed at random moments
lake.py       the files, and what DuckDB reads in them
```
"""

from __future__ import annotations

from bridge.operate.demo.story import run_demo

__all__ = ["run_demo"]
