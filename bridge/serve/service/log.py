"""Reports of the service on itself, for whoever reads its log."""

from __future__ import annotations

from typing import Any, Protocol

from bridge.errors import BridgeError, SettingsError


class ServiceLog(Protocol):
    """Prints, or keeps, what happens. Any thread may call it."""

    def begun(self, pipelines: int, scheduled: int) -> None:
        """The service is up."""

    def started(self, pipeline: str, run_id: str, reason: str) -> None:
        """A run has started. `reason`: `schedule`, `missed` or `request`."""

    def finished(self, pipeline: str, run_id: str, result: dict[str, Any] | None, code: int) -> None:
        """It has ended with an exit code, negative if a signal killed it; then there is no result."""

    def waits(self, pipeline: str, held: BridgeError) -> None:
        """A run waits for another one, somewhere, that holds its pipeline."""

    def left_out(self, pipeline: str, reason: str) -> None:
        """A run that waited never starts: another one has done its work, or it was stopped."""

    def failed(self, pipeline: str, text: str) -> None:
        """A run could not even be started."""

    def compared(self, pipeline: str, text: str, level: str = "info") -> None:
        """News of a comparison with the source; a `warning`: the lake differs, an `error`: it failed."""

    def refused(self, error: SettingsError, stays: bool) -> None:
        """Settings are wrong. Those from before stay, or without them the pipeline is left out."""

    def unreadable(self, pipeline: str, error: BridgeError) -> None:
        """A pipeline's bucket cannot be read, so its schedule has to wait."""

    def changed(self) -> None:
        """It goes by changed settings from now on."""

    def noted(self, text: str) -> None:
        """Anything else."""

    def ending(self, runs: int) -> None:
        """It was asked to end, and waits for so many runs, to which it has passed the signal."""
