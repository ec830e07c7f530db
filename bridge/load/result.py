"""What comes of a run: for people, for `--json`, and for its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.errors import BridgeError
from bridge.load.dispatcher import Counts


@dataclass(slots=True)
class Result:
    """What came of a run; `failed` until it is known better. `seconds` are wall-clock."""

    run_id: str
    pipeline: str
    attempt: int = 1
    status: str = "failed"
    skipped: list[str] = field(default_factory=list)
    commits: int = 0
    streams: dict[str, Counts] = field(default_factory=dict)
    state: Any = None
    state_before: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: BridgeError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and the run record keeps."""
        error = self.error
        return {
            "format": 1,
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "attempt": self.attempt,
            "status": self.status,
            "skipped": self.skipped,
            "commits": self.commits,
            "streams": {name: counts.to_json() for name, counts in self.streams.items()},
            "state": self.state,
            "state_before": self.state_before,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "warnings": self.warnings,
            "error": error and {"type": type(error).__name__, "message": error.message, "hint": error.hint},
        }
