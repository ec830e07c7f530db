"""Sessions that were ended before their time: a copy of their cookie is worth nothing, also after a restart."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from bridge.lake.storage.local.folders import draft_of, explained


class Logouts:
    """The ids of these sessions, in a file as long as a cookie could be valid. They are no secret."""

    def __init__(self, file: Path | None = None) -> None:
        """`file`: None forgets them with the process."""
        self._file = file
        self._lock = threading.Lock()
        self._until = dict[str, float]()
        if file:
            with suppress(OSError, ValueError):  # there is none yet
                lines = (line.split() for line in file.read_text().splitlines())
                self._until = {session: float(until) for session, until in lines}

    def __contains__(self, session: str) -> bool:
        return session in self._until

    def end(self, session: str, until: float) -> None:
        """End a session whose cookie is valid until that time. Raises `LakeError` if a restart would forget it."""
        with self._lock:
            now = time.time()
            self._until = {one: end for one, end in self._until.items() if end > now} | {session: until}
            if self._file:
                with explained("note the logout in", self._file), draft_of(self._file) as draft:
                    draft.parent.mkdir(parents=True, exist_ok=True)
                    draft.write_text("".join(f"{one} {end:.0f}\n" for one, end in self._until.items()))
