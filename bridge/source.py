"""What the tap is given: its command, environment, catalog and STATE; and `--discover`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from bridge.catalog import deselected, parse_catalog, select
from bridge.config import Pipeline, redactor
from bridge.errors import SettingsError, TapError
from bridge.tap import Tap, find_executable

__all__ = ["Source", "catalog_file", "environment", "home_folder", "taps_folder"]

_DISCOVER_LIMIT = timedelta(minutes=5)


def home_folder(settings_file: Path | None) -> Path:
    """Return the project's `.singer-bridge`: beside bridge.yaml, else here; or as the variable says."""
    if given := os.environ.get("SINGER_BRIDGE_HOME"):
        return Path(given).expanduser().absolute()
    return (settings_file.parent if settings_file else Path.cwd()).absolute() / ".singer-bridge"


def taps_folder(home: Path, pipeline: str) -> Path:
    """Return the venv that `install` makes for a pipeline's tap."""
    return home / "taps" / pipeline


def catalog_file(home: Path, pipeline: str) -> Path:
    """Return where `discover` keeps a pipeline's catalog."""
    return home / "catalogs" / f"{pipeline}.json"


def environment(pipeline: Pipeline) -> dict[str, str]:
    """Return the tap's environment: ours and the settings'."""
    return dict(os.environ) | pipeline.source.env


class Source:
    """The tap of one pipeline. Nothing runs before `discover` or `start`; `tick` may raise to end a discovery."""

    def __init__(self, pipeline: Pipeline, home: Path, tick: Callable[[], None] = lambda: None) -> None:
        self.pipeline = pipeline
        self._tick = tick
        self.home = home
        self.redact = redactor(pipeline.secrets)
        self.environ = environment(pipeline)
        self.argv = find_executable(pipeline.source.argv, taps_folder(home, pipeline.name) / "bin", self.environ)

    def catalog(self, only: Sequence[str], *, refresh: bool) -> tuple[dict[str, Any] | None, set[str]]:
        """Return the catalog to pass, if any, and the names of the streams that it deselects.

        Discovers when `select` or `--stream` needs it, or when asked to; keeps what it found for the next run.
        """
        source, kept = self.pipeline.source, catalog_file(self.home, self.pipeline.name)
        if refresh and source.catalog:
            hint = "write it anew with `singer-bridge discover --json`, or remove source.catalog"
            raise SettingsError("--refresh-catalog would not change your catalog file", hint=hint, file=source.catalog)
        catalog: dict[str, Any] | None = None
        if source.catalog:
            catalog = _read(source.catalog)
        elif kept.exists() and not refresh:
            catalog = _read(kept)
        elif refresh or source.select or only:
            catalog = self.discover()
        if catalog is None:
            if only:
                hint = "this tap does not discover, so its streams cannot be chosen; run it without --stream"
                raise SettingsError("--stream needs a catalog", hint=hint)
            return None, set()
        if source.select or only:
            catalog = select(catalog, source.select, only)
        return catalog, deselected(catalog)

    def discover(self) -> dict[str, Any] | None:
        """Run `--discover` and keep the catalog; None if the tap answers by running. Raises `TapError`."""
        log = self.home / "discover.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("wb") as stderr, self._tap([*self.argv, "--discover"], stderr) as tap:
                text = bytearray()
                for chunk in tap.chunks(idle=_DISCOVER_LIMIT, tick=self._tick):
                    text += chunk
                    if b"\n" in chunk and _is_message(bytes(text.split(b"\n", 1)[0])):
                        return None
                tap.wait(idle=_DISCOVER_LIMIT, tick=self._tick)
                if not text.strip():
                    raise tap.failure("the tap's --discover printed nothing")
        finally:
            with suppress(OSError):
                log.unlink()
        catalog = parse_catalog(bytes(text))
        if catalog is not None:
            file = catalog_file(self.home, self.pipeline.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(orjson.dumps(catalog, option=orjson.OPT_INDENT_2))
        return catalog

    def _tap(self, argv: list[str], log: Any, **given: Any) -> Tap:
        config = self.pipeline.source.config
        return Tap(argv, config=config, environ=self.environ, log=log, redact=self.redact, **given)

    def start(self, catalog: dict[str, Any] | None, state: Any, log: Any) -> Tap:
        """Return the tap for one run, not yet started."""
        return self._tap(self.argv, log, catalog=catalog, state=state)


def _is_message(line: bytes) -> bool:
    with suppress(TapError):
        return parse_catalog(line) is None
    return False


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        hint = "make it with `singer-bridge discover`, or correct `source.catalog`"
        raise SettingsError(f"cannot read the catalog: {error.strerror}", hint=hint, file=path) from error
    catalog = parse_catalog(text)
    if catalog is None:
        raise SettingsError("this is a Singer message, not a catalog", hint="see `singer-bridge discover`", file=path)
    return catalog
