"""`bridge.Project`: run the pipelines of a `bridge.yaml` from Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.load.run.result import Result
from bridge.load.run.stop import Stop
from bridge.load.run.trace import record_refused
from bridge.load.tap.source import home_folder
from bridge.protocol.singer.state_edits import plain
from bridge.serve.launch.launch import launch
from bridge.settings.load import Settings, read_settings
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request, Window


class Project:
    """The pipelines of one `bridge.yaml`, in an environment or in none.

    The file is read anew by each call, with `.env` beside it and the variables of this process, as the command line
    reads it. Variables in `.env` that begin with `AWS_` are set in this process, since boto3 looks for them there.
    """

    def __init__(self, file: str | os.PathLike[str] = "bridge.yaml", *, environment: str | None = None) -> None:
        """Nothing is read until a method is called. `environment`: by default what `SINGER_BRIDGE_ENV` says."""
        self._path, self._environment = Path(file).absolute(), environment

    def __repr__(self) -> str:
        chosen = f", environment={self._environment!r}" if self._environment else ""
        return f"Project({str(self._path)!r}{chosen})"

    @property
    def pipelines(self) -> list[str]:
        """The names of the pipelines, in the file's order. Raises `SettingsError` for a file that is wrong."""
        return list(self._settings().pipelines)

    def run(
        self,
        pipeline: str | None = None,
        *,
        full: bool = False,
        append: bool = False,
        streams: str | Iterable[str] = (),
        state: Mapping[str, Any] | None = None,
        refresh_catalog: bool = False,
        resume: bool = False,
        max_records: int | None = None,
        adopt: bool = False,
        guard: bool = True,
        timeout: timedelta | None = None,
        wait: timedelta | None = None,
        backfill: str | None = None,
    ) -> Result:
        """Load one pipeline, as `singer-bridge run` does; without a name the only one. Arguments are its flags.

        Returns when all is committed. A run that fails raises its error, a `BridgeError`, whose `result` is the run's
        `Result`; what was committed before stays. If settings or arguments are wrong nothing starts: `SettingsError`,
        whose `result` may be None. The pipeline's `retry` counts; the last attempt's result is returned.

        Nothing is printed or logged, and no signal is handled, so any thread may call this. Threads take turns, as a
        process has one Spark. Ctrl-C, or an exception that a signal handler raises, ends the tap and the run, and goes
        on to the caller.
        """
        request = Request(
            full=full,
            append=append,
            streams=(streams,) if isinstance(streams, str) else tuple(streams),
            state=None if state is None else plain(dict(state)),
            refresh_catalog=refresh_catalog,
            resume=resume,
            max_records=max_records,
            adopt=adopt,
            guard=guard,
            timeout=timeout,
            wait=wait,
            backfill=None if backfill is None else Window.read(backfill),
        )
        result = launch(self._chosen(pipeline), request, home_folder(self._path), stop=Stop(signals=False))
        if result.error:
            result.error.result = result
            raise result.error
        return result

    def _chosen(self, name: str | None) -> Pipeline:
        """The pipeline of that name. If its settings are wrong, the run that they refuse is recorded."""
        settings = read_settings(self._path, self._environment, renew=True)
        try:
            return settings.pipeline(name)
        except SettingsError:
            if refused := settings.refused(name):
                record_refused(refused[0], home_folder(self._path), refused[1])
            raise

    def _settings(self) -> Settings:
        return read_settings(self._path, self._environment)
