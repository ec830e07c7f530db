"""Three loaders of one tap for the harness's own tests: `python loaders.py early | late | exact`, in their folder.

`early` stores a STATE before its rows, `late` its rows at once and the STATE at the end; both are wrong. `exact` stores
a page of rows under a name that is its bookmark, by one rename.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

how, state, lake = sys.argv[1], Path("state.json"), Path("lake")
lake.mkdir(exist_ok=True)
if how == "exact" and (pages := sorted(lake.glob("*.json"))):
    bookmark = {"replication_key": "id", "replication_key_value": int(pages[-1].stem)}
    state.write_text(json.dumps({"bookmarks": {"numbers": bookmark}}), encoding="utf-8")
command = ["./tap-numbers", "--config", "tap.json", *(["--state", "state.json"] if state.exists() else [])]
rows: list[str] = []
run = Path(f"lake/{os.getpid()}.json")


def store(rows: list[str]) -> None:
    """Append rows to the run's file."""
    with run.open("a", encoding="utf-8") as file:
        file.writelines(rows)


def keep(value: object) -> None:
    """Store a STATE by one rename: a kill leaves the old one or the new one."""
    draft = Path("state.new")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.rename(state)


with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tap:
    value = None
    for line in tap.stdout or ():
        message = json.loads(line)
        if message["type"] == "RECORD":
            rows.append(json.dumps(message["record"]) + "\n")
        elif message["type"] == "STATE":
            value = message["value"]
            if how == "early":
                keep(value)
            elif rows:
                if how == "exact":
                    run = Path("page.new")
                store(rows)
                if how == "exact":
                    run.rename(lake / f"{value['bookmarks']['numbers']['replication_key_value']:09}.json")
                rows = []
            print("a STATE", flush=True)
if how == "early":
    store(rows)
elif how == "late":
    keep(value)
sys.exit(tap.returncode)
