"""`python -m tests.benchmarks`: see README.md beside this file."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
