"""The settings that the service goes by: bridge.yaml as it is now, or as it was when it was last right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bridge.errors import SettingsError
from bridge.settings.load import Settings, SettingsFile, read_settings
from bridge.settings.options import Pipeline
from bridge.settings.service import Service


class CurrentSettings:
    """Reads the file again when it has changed. What is wrong is reported once, and what was right before stays.

    A wrong pipeline keeps its own old settings; the others are taken as they are now. `report` gets an error, and
    whether older settings stay: without them the pipeline is left out.
    """

    def __init__(self, path: Path, environment: str | None, report: Callable[[SettingsError, bool], None]) -> None:
        """Raises `SettingsError` if the file as such, or its section `service`, is wrong."""
        self._file, self._report = SettingsFile(path, environment), report
        self.path, self._environment = self._file.path, environment
        self.pipelines: dict[str, Pipeline] = {}
        """By their names in the file."""
        self.service = Service()
        self._reported: set[str] = set()
        self._take(self._file.read())
        self._at_start = self.service

    def refresh(self) -> bool:
        """Read the file again if it, what it includes or `.env` has changed; return whether its settings now count."""
        if not self._file.has_changed():
            return False
        try:
            self._take(self._file.read())
        except SettingsError as error:
            self._report_once([(error, True)])
            return False
        return True

    def changed_since_start(self) -> list[str]:
        """The keys of `service` whose present value counts only after a restart: the page is served already."""
        keys = ("host", "port", "token")
        return [key for key in keys if getattr(self.service, key) != getattr(self._at_start, key)]

    def fresh(self, name: str) -> Pipeline:
        """A pipeline as its files and variables are at this moment; as it was if that is wrong. `name`: of `pipelines`.

        A file with a tap's settings or a password may have changed while bridge.yaml has not.
        """
        try:
            return read_settings(self.path, self._environment, renew=True).pipeline(name)
        except SettingsError:
            return self.pipelines[name]

    def _take(self, settings: Settings) -> None:
        service = settings.service
        pipelines, problems = {}, []
        for name in settings.pipelines:
            try:
                pipelines[name] = settings.pipeline(name)
            except SettingsError as error:
                problems.append((error, name in self.pipelines))
                if name in self.pipelines:
                    pipelines[name] = self.pipelines[name]
        self.service, self.pipelines = service, pipelines
        self._report_once(problems)

    def _report_once(self, errors: list[tuple[SettingsError, bool]]) -> None:
        for error, stays in errors:
            if error.message not in self._reported:
                self._report(error, stays)
        self._reported = {error.message for error, _ in errors}
