"""`python -m tap_replay` is `tap-replay`."""

from __future__ import annotations

import sys

from tap_replay import main

sys.exit(main())
