"""What tests of the lease read and wait for."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

from bridge.lake.storage import Storage

KEY = ".bridge/p/lease.json"


def said(lake: Storage) -> dict[str, Any]:
    """What the object says."""
    value: dict[str, Any] = json.loads(lake.read(KEY) or b"{}")
    return value


def never(_: timedelta) -> None:
    """Fail, as there is nothing to wait for."""
    raise AssertionError("this had not to wait")


def briefly(_: timedelta) -> None:
    """Wait for less than a user would."""
    time.sleep(0.05)
