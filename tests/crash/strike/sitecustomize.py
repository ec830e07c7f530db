"""Python imports this at its start when this folder is on PYTHONPATH: it kills the process at a chosen instant.

`CRASH_TEST_STRIKE` is JSON: `process` (a word of the command line: `bridge`, or `pyspark.worker` for Spark's workers),
`events` (a regular expression for an audit event with its arguments), `count` (which match), `phase` (`recovery` is
before the tap is started, `load` after; null is any time), `after_ms`, and `mark`, a file: whoever can create it
strikes, so that it happens once in a run. The event has not happened yet: the instant is just before it.

Nothing in the product knows of this: https://docs.python.org/3/library/audit_events.html
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from typing import Any

_SHOWN = 4000
"""Characters of a request that are matched: the line and its headers."""


class _Strike:
    def __init__(self, strike: dict[str, Any]) -> None:
        self._events = re.compile(strike["events"], re.DOTALL)
        self._left, self._phase = strike["count"], strike["phase"]
        self._after, self._mark = strike["after_ms"] / 1000, strike["mark"]
        self._started = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and "--config" in arguments[1]:
            self._started = True
        if not event.startswith(("os.", "open", "ctypes.dlsym", "http.client.send", "shutil.rmtree")):
            return
        if self._phase and self._started != (self._phase == "load"):
            return
        if event == "http.client.send":
            data = arguments[1]
            shown = bytes(data[:_SHOWN]).decode("latin-1") if isinstance(data, (bytes, bytearray)) else ""
        else:
            shown = " ".join(str(argument) for argument in arguments)
        if self._events.match(f"{event} {shown}"):
            self._left -= 1
            if self._left == 0:
                self._strike()

    def _strike(self) -> None:
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self._after:
            threading.Thread(target=self._later, daemon=True).start()
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def _later(self) -> None:
        time.sleep(self._after)
        os.kill(os.getpid(), signal.SIGKILL)


_given = json.loads(os.environ.get("CRASH_TEST_STRIKE", "null"))
if _given and _given["process"] in sys.orig_argv:
    sys.addaudithook(_Strike(_given))
