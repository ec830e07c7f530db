"""What a user of OLake edits in the streams.json that `discover` wrote: `python olake_streams.py SYNC_MODE`."""

import json
import sys
from pathlib import Path

file = Path("streams.json")
catalog = json.loads(file.read_text(encoding="utf-8"))
for chosen in catalog["selected_streams"]["public"]:
    chosen["normalization"] = True
for stream in catalog["streams"]:
    stream["stream"] |= {"sync_mode": sys.argv[1], "cursor_field": "id" if sys.argv[1] == "incremental" else ""}
file.write_text(json.dumps(catalog), encoding="utf-8")
