"""A tap that says what it is told: each line of the file `script` of its config, as it stands there.

A line `{"wait": true}` has it wait until it is ended, `{"exit": 1}` has it end so.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    if "--discover" in sys.argv:
        print(json.dumps({"type": "STATE", "value": {}}))  # it does not discover
        return
    config = json.loads(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
    for line in Path(config["script"]).read_text().splitlines():
        message = json.loads(line)
        if "exit" in message:
            sys.exit(message["exit"])
        if "wait" in message:
            time.sleep(600)
        print(line, flush=True)


if __name__ == "__main__":
    main()
