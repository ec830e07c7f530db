"""A process that outlives a killed demo just long enough to stop its database.

PostgreSQL detaches from the process that starts it, so a demo that dies by SIGKILL would leave its server running. This
file runs as a program of its own, imports only the standard library, and waits on a pipe whose other end only the demo
holds.
"""

from __future__ import annotations

import os
import signal
import sys
import time

LOOKS = 40
PAUSE_SECONDS = 0.25


def main(pid_file: str) -> None:
    """Stop the server named in `pid_file` when stdin ends without a byte; a byte means that all is well."""
    if sys.stdin.buffer.read():
        return
    for _ in range(LOOKS):  # a server that is still starting writes its pid a moment after the demo dies
        try:
            with open(pid_file, encoding="utf-8") as lines:
                os.kill(int(lines.readline()), signal.SIGINT)  # PostgreSQL's "fast shutdown": roll back and end
            return
        except (OSError, ValueError):
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
