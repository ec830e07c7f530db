"""`python -m tap_smoke` is `tap-smoke`."""

from __future__ import annotations

import sys

from tap_smoke import main

sys.exit(main())
