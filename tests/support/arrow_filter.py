"""A tap whose RECORDs come as BATCHes of Arrow: `python arrow_filter.py FOLDER TAP ARGUMENTS...`.

Runs the tap, and writes what it says to stdout; consecutive RECORDs of a stream become a file in the folder.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

_MOST = 200
"""Rows of a file."""


class Filter:
    """Gathers RECORDs, and says BATCH instead."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._around, self._records = folder, dict[str, Any](), list[Any]()
        folder.mkdir(exist_ok=True)

    def hear(self, line: bytes) -> None:
        message = json.loads(line)
        around = {key: message[key] for key in ("stream", "version", "time_extracted") if key in message}
        if message["type"] != "RECORD" or around != self._around or len(self._records) == _MOST:
            self.flush()
        if message["type"] == "RECORD":
            self._around = around
            self._records.append(message["record"])
        else:
            self._say(line)

    def flush(self) -> None:
        if not self._records:
            return
        rows, file = pa.Table.from_pylist(self._records), self._folder / f"{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        batch = {"type": "BATCH", **self._around, "encoding": {"format": "arrow"}, "manifest": [file.as_uri()]}
        self._say(json.dumps(batch).encode() + b"\n")
        self._records = []

    def _say(self, line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def main() -> int:
    filter_ = Filter(Path(sys.argv[1]).absolute())
    with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE) as tap:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: tap.send_signal(number))
        assert tap.stdout
        for line in tap.stdout:
            if "--discover" in sys.argv:
                sys.stdout.buffer.write(line)
            else:
                filter_.hear(line)
        filter_.flush()
    return tap.returncode


if __name__ == "__main__":
    sys.exit(main())
