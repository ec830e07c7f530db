"""A project's notes on the lakes that it wrote to: the last commit of each pipeline.

```
.singer-bridge/lakes/<pipeline>.json    {"format": 1, "lakes": {"<bucket>": {"commit": 17, "at": "2026-..."}}}
```
The lake stays the truth. The note only distinguishes a new lake from one that is not mounted, or was deleted: both
look empty. It is written after a run, so it may be behind the lake, never ahead of it.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bridge.errors import LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Log
from bridge.lake.storage import Storage
from bridge.lake.storage.local.folders import draft_of
from bridge.settings.commands import full_run
from bridge.settings.options import Pipeline


def _file(home: Path, pipeline: str) -> Path:
    return home / "lakes" / f"{pipeline}.json"


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The number of a commit, and when the project noted it, in ISO 8601."""

    number: int
    at: str

    def __str__(self) -> str:
        return f"commit {self.number}, on {self.at[:10]}"


class LastCommits:
    """One pipeline's notes, a file in the project's `.singer-bridge`. `piped`: another program starts the tap."""

    def __init__(self, home: Path, pipeline: Pipeline, *, piped: bool = False) -> None:
        self._file, self._pipeline, self._piped = _file(home, pipeline.name), pipeline, piped

    @staticmethod
    def forget(home: Path, pipeline: str) -> None:
        """Delete a pipeline's notes, before its lakes are deleted on purpose."""
        _file(home, pipeline).unlink(missing_ok=True)

    @property
    def pipeline(self) -> str:
        return self._pipeline.name

    def of(self, storage: Storage) -> LastCommit | None:
        """The last commit that the project noted for this lake; None without a readable note, or without a commit."""
        lake = self._lakes().get(storage.uri)
        with suppress(KeyError, TypeError, ValueError):
            noted = LastCommit(int(lake["commit"]), str(lake["at"])) if lake else None
            return noted if noted and noted.number else None
        return None

    def check(self, storage: Storage, *, full: bool) -> list[str]:
        """Warnings about a lake that is behind its note. Raises `LakeError` for an empty one, unless `full`.

        Nothing is written: what looks empty may be the folder below a mount.
        """
        noted, log = self.of(storage), Log(storage, self._pipeline.name)
        if noted is None or log.exists(noted.number) or (head := log.latest()) >= noted.number:
            return []
        if head:
            text = f"the lake is at commit {head}, and this project has written {noted} to it: restored from a backup?"
            return [f"{text} It goes on from the bookmarks of commit {head}"]
        if full:
            return []
        raise LakeError(f"the lake is empty, {self.tell(noted)}", hint=self.hint, bucket=storage.uri)

    @staticmethod
    def tell(noted: LastCommit) -> str:
        """Describe the note on a lake that is empty now."""
        return f"and this project has written {noted} to it"

    @property
    def hint(self) -> str:
        """The advice for an empty lake, and what to type if it was deleted on purpose."""
        restart = full_run(self._pipeline.name) + (" --append" if self._pipeline.appends_only() else "")
        if self._piped:
            restart = f"rm {shlex.quote(str(self._file))}, and start the tap without a STATE"
        return f"mount it, or restore it from a backup; if it was deleted on purpose, start over: {restart}"

    def note(self, storage: Storage, number: int) -> None:
        """Note the last commit; 0 is none. If that fails, there is no note, and the run goes on."""
        lakes = self._lakes()
        if lakes.get(storage.uri, {}).get("commit", 0) == number:
            return
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        text = dumps({"format": 1, "lakes": lakes | {storage.uri: {"commit": number, "at": at}}}, indent=2)
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with draft_of(self._file) as draft:
                draft.write_bytes(text)

    def _lakes(self) -> dict[str, dict[str, Any]]:
        with suppress(OSError, NotJson):
            document = loads(self._file.read_bytes())
            if isinstance(document, dict) and document.get("format") == 1 and isinstance(document.get("lakes"), dict):
                return {uri: lake for uri, lake in document["lakes"].items() if isinstance(lake, dict)}
        return {}
