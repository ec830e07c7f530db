"""A tap that waits for each page, as taps of web APIs do; run as a program. The file `source` of its config is what it
reads: what each stream does.

`streams` maps a name to `last` (its ids go from 1 to that), `page` (records a page, and a STATE after each), `seconds`
(the wait for a page), `fails_at` (an id before which the tap dies), `silent_at` (one before which it says nothing any
more), and `parent`: its rows are a parent's, from that one's bookmark on, and the parent's own are left out. `batch`: a
page is a file in that folder, told of by a BATCH, and where it fails one that is missing; `said`: a value of all its
records; `again`: so many before its bookmark come once more.
`flat`: bookmarks stand at the STATE's top. `noise`: each process says a line that is no message. `unasked`: all
streams are read, selected or not. In the folder `given` of its config each process leaves the STATE that it was started
with, by the first of its streams.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def discover(streams: dict[str, Any]) -> None:
    entries = [
        {
            "tap_stream_id": name,
            "stream": name,
            "schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
            "metadata": [{"breadcrumb": [], "metadata": {"selected": True, "replication-method": "INCREMENTAL"}}],
        }
        for name in streams
    ]
    print(json.dumps({"streams": entries}))


def read(name: str, stream: dict[str, Any], marks: dict[str, Any], *, flat: bool) -> None:
    sys.stderr.write(f"reading {name}\n")
    more = {"said": stream["said"]} if "said" in stream else {}
    properties = {column: {"type": "integer"} for column in ("id", *more)}
    say(type="SCHEMA", stream=name, schema={"properties": properties}, key_properties=["id"])
    reads = stream.get("parent", name)
    done = marks.get(reads, {}).get("replication_key_value", 0)
    page, waiting = stream.get("page", 2), []
    for number in range(max(done - stream.get("again", 0), 0) + 1, stream["last"] + 1):
        if number == stream.get("fails_at"):
            if waiting:
                tell(name, waiting, Path(stream["batch"], f"{name}-half.jsonl"), Path(stream["batch"], "missing.jsonl"))
            sys.exit(f"{name}: the source went away")
        if number == stream.get("silent_at"):
            time.sleep(600)
        if "batch" in stream:
            waiting.append({"id": number} | more)
        else:
            say(type="RECORD", stream=name, record={"id": number} | more)
        if number % page == 0 or number == stream["last"]:
            if waiting:
                tell(name, waiting, Path(stream["batch"], f"{name}-{number}.jsonl"))
                waiting.clear()
            mark = {"replication_key": "id", "replication_key_value": number}
            marks |= {reads: mark, name: mark}
            say(type="STATE", value=marks if flat else {"bookmarks": marks})
            time.sleep(stream.get("seconds", 0))


def tell(name: str, records: list[dict[str, Any]], file: Path, *more: Path) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    say(
        type="BATCH",
        stream=name,
        encoding={"format": "jsonl", "compression": "none"},
        manifest=[path.as_uri() for path in (file, *more)],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("config", "catalog", "state"):
        parser.add_argument(f"--{flag}", type=lambda path: json.loads(Path(path).read_text()), default={})
    parser.add_argument("--discover", action="store_true")
    asked = parser.parse_args()
    source = json.loads(Path(asked.config["source"]).read_text())
    streams, flat = source["streams"], source.get("flat", False)
    if asked.discover:
        discover(streams)
        return
    selected = {
        entry["stream"] for entry in asked.catalog.get("streams", ()) if entry["metadata"][0]["metadata"]["selected"]
    }
    marks = dict(asked.state if flat else asked.state.get("bookmarks", {}))
    if source.get("noise"):
        print("hello", flush=True)
    Path(asked.config["given"], f"{min(selected, default='all')}.json").write_text(json.dumps(asked.state))
    for name, stream in streams.items():
        if name in selected or source.get("unasked"):
            read(name, stream, marks, flat=flat)


if __name__ == "__main__":
    main()
