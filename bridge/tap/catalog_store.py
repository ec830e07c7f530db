"""The catalog that is kept between runs, and beside it what the tap itself last said.

```
.singer-bridge/catalogs/<pipeline>.json             passed to the tap; the user may edit it
.singer-bridge/catalogs/discovered/<pipeline>.json  the tap's own last words: what was edited is the difference
```
With `source.catalog` that file is the kept one. Both are replaced whole, so a crash leaves the old or the new.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError, TapError
from bridge.exact_json import NotJson, dumps, loads
from bridge.settings.options import Pipeline
from bridge.singer.catalog import Catalog, parse_catalog
from bridge.singer.catalog_merge import Changes, compare, merge, with_new_types
from bridge.storage.local.folders import draft_of
from bridge.tap.catalog_overrides import named


def catalog_file(home: Path, pipeline: str) -> Path:
    """Return where `discover` keeps a pipeline's catalog."""
    return home / "catalogs" / f"{pipeline}.json"


@dataclass(frozen=True, slots=True)
class Discovery:
    """What came of a discovery: the catalog with the user's edits, and what is different from the last one."""

    catalog: Catalog
    changes: Changes
    overruled: list[str] = field(default_factory=list)
    """Where the user's edit stands although the tap changed the same thing."""
    first: bool = False
    """There was nothing to compare with."""

    def told(self) -> list[str]:
        """Return a line for each thing that is different, and for each edit that stands against the tap."""
        return [
            *self.changes.told(),
            *(f"{place}: your edit stands, the tap's own changed" for place in self.overruled),
        ]


def with_names(pipeline: Pipeline, home: Path) -> Pipeline:
    """Return the pipeline that knows its streams' names by the kept catalog, if there is one that can be read."""
    with suppress(SettingsError):  # an unreadable catalog is the run's matter
        return named(pipeline, Kept(home, pipeline).read())
    return pipeline


class Kept:
    """The files of one pipeline's catalog."""

    def __init__(self, home: Path, pipeline: Pipeline) -> None:
        self.file = pipeline.source.catalog or catalog_file(home, pipeline.name)
        self._given = pipeline.source.catalog is not None
        self._memory_file = home / "catalogs" / "discovered" / f"{pipeline.name}.json"

    def read(self) -> Catalog | None:
        """Return the kept catalog, None if there is none. Raises `SettingsError`, also where source.catalog misses."""
        try:
            text = self.file.read_bytes()
        except FileNotFoundError as error:
            if self._given:
                raise self._unreadable(error) from error
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        with suppress(TapError):
            if (catalog := parse_catalog(text)) is not None:
                return catalog
        hint = "correct it; or delete it, and `singer-bridge discover` makes it anew, without your edits"
        raise SettingsError("this file is not a catalog", hint=hint, file=self.file)

    def _unreadable(self, error: OSError) -> SettingsError:
        hint = "`singer-bridge discover` makes it; or correct `source.catalog`"
        return SettingsError(f"cannot read the catalog: {error.strerror}", hint=hint, file=self.file)

    def merged(self, now: Catalog, *, keep: bool = True) -> Discovery:
        """Return what the tap says now with the edits of the kept catalog, and keep it. Raises `SettingsError`."""
        # An empty file is what the shell makes of `discover --json > catalog.json` before we look.
        edited = self.read() if self.file.exists() and self.file.stat().st_size else None
        memory = self._memory()
        before = memory.get("catalog")
        if edited is None:
            merged, changes = merge(now, now, now), Changes()
        else:
            merged, changes = merge(before, edited, now, memory.get("gone")), compare(before or edited, now)
        if keep:
            if merged.catalog != edited:
                self._replace(self.file, merged.catalog)
            self._replace(self._memory_file, memory | {"format": 1, "catalog": now, "gone": merged.gone})
        return Discovery(merged.catalog, changes, merged.overruled, edited is None)

    def retyped(self, now: Catalog, streams: Collection[str]) -> list[str]:
        """Bring the types of the streams' columns up to date, and return a line for each that changed."""
        before = self._memory().get("catalog")
        if before is None:
            return []
        catalog, lines = with_new_types(before, now, streams)
        if lines:
            found = self.merged(catalog)
            lines += [f"{place}: your edit stands, the tap's own changed" for place in found.overruled]
        return lines

    @property
    def seconds(self) -> float | None:
        """How long the tap took to discover the last time; None where we did not see it, or the catalog is given."""
        if self._given:
            return None
        with suppress(KeyError, TypeError, ValueError):
            return float(self._memory()["seconds"])
        return None

    def remember_seconds(self, seconds: float) -> None:
        """Note how long the tap took to discover."""
        with suppress(SettingsError):
            self._replace(self._memory_file, self._memory() | {"format": 1, "seconds": round(seconds, 3)})

    def flag(self, tap: str) -> str | None:
        """Return the flag by which that tap takes its catalog, None if it is not known yet."""
        said = self._memory().get("flag")
        return str(said["flag"]) if isinstance(said, dict) and said.get("tap") == tap else None

    def remember_flag(self, tap: str, flag: str) -> None:
        """Note the flag, so that the tap need not be asked again."""
        with suppress(SettingsError):  # a folder that cannot be written costs one question a run
            self._replace(self._memory_file, self._memory() | {"format": 1, "flag": {"tap": tap, "flag": flag}})

    def _memory(self) -> dict[str, Any]:
        """Return what was noted; without it, or with what makes no sense, edits are guessed as for a foreign file."""
        with suppress(OSError, NotJson):
            memory = loads(self._memory_file.read_bytes())
            if isinstance(memory, dict) and memory.get("format") == 1:
                return memory
        return {}

    def _replace(self, file: Path, value: Any) -> None:
        file = file.resolve()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with draft_of(file) as draft:
                draft.write_bytes(dumps(value, indent=2))
        except OSError as error:
            hint = "give the rights to write it, or print it with `singer-bridge discover --json`"
            raise SettingsError(f"cannot keep the catalog: {error.strerror}", hint=hint, file=file) from error
