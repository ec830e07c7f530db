"""The catalog that is stored between runs, and beside it the one that the tap last discovered.

```
.singer-bridge/catalogs/<pipeline>.json             passed to the tap; the user may edit it
.singer-bridge/catalogs/discovered/<pipeline>.json  as the tap discovered it: the difference is the user's edits
```
With `source.catalog`, that file is the stored one. Both are replaced whole, so a crash leaves the old or the new.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError, TapError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.storage.local.folders import draft_of
from bridge.load.tap.catalog_overrides import named
from bridge.load.tap.digits import with_known_digits
from bridge.protocol.singer.catalog import Catalog, parse_catalog, stream_ids
from bridge.protocol.singer.catalog_merge import Changes, compare, merge, with_columns_of
from bridge.settings.options import Pipeline


def catalog_file(home: Path, pipeline: str) -> Path:
    """Where `discover` stores a pipeline's catalog."""
    return home / "catalogs" / f"{pipeline}.json"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a discovery: the catalog with the user's edits, and what changed since the last one."""

    catalog: Catalog
    changes: Changes
    overruled: list[str] = field(default_factory=list)
    """Edits of the user that were kept although the tap changed the same thing."""
    first: bool = False
    """Whether it was the first discovery, with nothing to compare."""

    def lines(self) -> list[str]:
        """A line for each change, and for each kept edit that contradicts the tap."""
        return [*self.changes.lines(), *map(_stands, self.overruled)]


@dataclass(frozen=True, slots=True)
class Declared:
    """The streams that a tap declares that runs without a catalog."""

    tap: str
    version: str
    catalog: Catalog | None
    """None: it does not discover."""
    seconds: float
    """How long it took."""


def _stands(place: str) -> str:
    return f"{place}: your edit stands, though the tap changed it too"


def with_names(pipeline: Pipeline, home: Path) -> Pipeline:
    """The pipeline with its streams' names from the stored catalog, if there is one that can be read."""
    with suppress(SettingsError):  # the run reports an unreadable catalog
        return named(pipeline, CatalogStore(home, pipeline).read())
    return pipeline


class CatalogStore:
    """The files of one pipeline's catalog."""

    def __init__(self, home: Path, pipeline: Pipeline) -> None:
        self.file = pipeline.source.catalog or catalog_file(home, pipeline.name)
        self._given = pipeline.source.catalog is not None
        self._memory_file = home / "catalogs" / "discovered" / f"{pipeline.name}.json"

    def read(self) -> Catalog | None:
        """The stored catalog, None if there is none. Raises `SettingsError`, also for a missing source.catalog."""
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
        hint = "correct it; or delete it, and `singer-bridge discover` makes a new one, without your edits"
        raise SettingsError("this file is not a catalog", hint=hint, file=self.file)

    def _unreadable(self, error: OSError) -> SettingsError:
        hint = "`singer-bridge discover` makes it; or correct `source.catalog`"
        return SettingsError(f"cannot read the catalog: {error.strerror}", hint=hint, file=self.file)

    def merged(self, now: Catalog, *, keep: bool = True) -> Discovery:
        """Apply the edits of the stored catalog to the tap's new one, and store the result. Raises `SettingsError`."""
        # With `discover --json > catalog.json` the shell creates an empty file before we read it.
        edited = self.read() if self.file.exists() and self.file.stat().st_size else None
        memory = self._memory()
        before = memory.get("catalog")
        now = with_known_digits(before, now)
        if edited is None:
            merged, changes = merge(now, now, now), Changes()
        else:
            merged, changes = merge(before, edited, now, memory.get("gone")), compare(before or edited, now)
        if keep:
            if merged.catalog != edited:
                self._replace(self.file, merged.catalog)
            self._replace(self._memory_file, memory | {"format": 1, "catalog": now, "gone": merged.removed})
        return Discovery(merged.catalog, changes, merged.overruled, edited is None)

    def updated(self, now: Catalog, streams: Collection[str], columns: Mapping[str, Collection[str]]) -> list[str]:
        """Update the types of the streams' columns, and these columns; return a line for each type that changed."""
        before = self.discovered
        if before is None:
            return []
        catalog, lines = with_columns_of(before, with_known_digits(before, now), streams, columns)
        if lines or columns:
            lines += map(_stands, self.merged(catalog).overruled)
        return lines

    @property
    def discovered(self) -> Catalog | None:
        """The catalog as the tap last discovered it, with the columns that runs have taken over since."""
        return self._memory().get("catalog")

    @property
    def removed(self) -> set[str]:
        """The streams that a discovery took out of the catalog, as the tap had them no more."""
        return set(stream_ids({"streams": self._memory().get("gone") or []}))

    def missing(self, now: Catalog) -> list[str]:
        """The streams that the tap's last discovery had, and this one has not. The user's own entries do not count."""
        return sorted({*stream_ids(self.discovered or now)}.difference(stream_ids(now)))

    def once(self, missing: Collection[str], streams: Collection[str]) -> list[str]:
        """Those of these streams that are missing, each once until it is back."""
        memory = self._memory()
        noted = memory.get("missing") or []
        lost = sorted({*missing}.intersection(streams))
        if (noting := sorted({*lost, *noted}.difference({*streams}.difference(lost)))) != noted:
            with suppress(SettingsError):  # a folder that cannot be written: it is said again
                self._replace(self._memory_file, memory | {"format": 1, "missing": noting})
        return [name for name in lost if name not in noted]

    @property
    def seconds(self) -> float | None:
        """How long the tap's last discovery took, in seconds; None if unknown, or if `source.catalog` is set."""
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
        """The flag by which that tap takes its catalog, None if it is not known yet."""
        noted = self._memory().get("flag")
        return str(noted["flag"]) if isinstance(noted, dict) and noted.get("tap") == tap else None

    def remember_flag(self, tap: str, flag: str) -> None:
        """Note the flag, so that the tap need not be asked again."""
        with suppress(SettingsError):  # a folder that cannot be written costs one question a run
            self._replace(self._memory_file, self._memory() | {"format": 1, "flag": {"tap": tap, "flag": flag}})

    def declared(self, tap: str, version: str) -> Declared | None:
        """The streams that this version of the tap declared when a run last discovered by itself; None if none did."""
        with suppress(KeyError, TypeError, ValueError):
            noted = self._memory()["declared"]
            if (noted["tap"], noted["version"]) == (tap, version):
                return Declared(tap, version, noted["catalog"], float(noted["seconds"]))
        return None

    def remember_declared(self, declared: Declared) -> None:
        """Note what the tap said of its streams. The pipeline still has no catalog."""
        facts = {field.name: getattr(declared, field.name) for field in fields(declared)}  # no copy: it may be large
        with suppress(SettingsError):  # a folder that cannot be written costs one question a run
            self._replace(self._memory_file, self._memory() | {"format": 1, "declared": facts})

    def _memory(self) -> dict[str, Any]:
        """The notes of the last discovery; empty if there are none, or unreadable ones: then edits are guessed."""
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
            hint = "give this user the right to write it, or print it with `singer-bridge discover --json`"
            raise SettingsError(f"cannot store the catalog: {error.strerror}", hint=hint, file=file) from error
