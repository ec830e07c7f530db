"""The Singer SDK's command line, settings and mapper around one load of ours.

The SDK passes every line to callbacks. Here its message reader passes the whole input to a `Run`, so the target is as
fast as `singer-bridge run`, and makes the same promise. It prints a STATE once all that it covers is committed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, ClassVar, NoReturn

import click
from singer_sdk import Target
from singer_sdk.exceptions import ConfigValidationError, MissingKeyPropertiesError, RecordsWithoutSchemaException
from singer_sdk.helpers.capabilities import CapabilitiesEnum, PluginCapabilities, TargetCapabilities
from singer_sdk.io_base import SingerReader

from bridge.cli.plain import plain
from bridge.durations import duration
from bridge.errors import BridgeError, LakeError, RecordBeforeSchema, did_you_mean
from bridge.exact_json import dumps
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.load.tap.source import home_folder
from bridge.load.tap.stdin import Piped, Start, Stdin
from bridge.serve.facts.after_run import after_run
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from bridge.settings.values.stores import aws_credentials
from target_bridge.dotted import as_written
from target_bridge.mapped import Mapped
from target_bridge.origin import given_state, meltano_state
from target_bridge.settings import CONFIG_JSONSCHEMA, pipeline_of

_MAPPING = ("stream_maps", "flattening_enabled")
_KEY = ("key is missing", "key is null")
_ANEW = "Here, instead of --full: load_method: overwrite for the stream, and start the tap without a STATE once"


class _WholeInput(SingerReader):
    """Lets the target load all messages at once."""

    def __init__(self, load: Callable[[IO[Any]], Counter[str]]) -> None:
        super().__init__()
        self._load = load

    def process_lines(self, file_input: IO[str] | None, callbacks: object) -> Counter[str]:
        """Load all of the input; return the messages by type."""
        return self._load(file_input or sys.stdin)


class TargetBridge(Target):
    """Loads into a lake, exactly once, on Spark."""

    name = "target-bridge"
    package_name = "singer-bridge"
    config_jsonschema: ClassVar[dict[str, Any]] = CONFIG_JSONSCHEMA
    capabilities: ClassVar[list[CapabilitiesEnum]] = [
        PluginCapabilities.ABOUT,
        PluginCapabilities.ACTIVATE_VERSION,
        PluginCapabilities.BATCH,
        PluginCapabilities.STREAM_MAPS,
        PluginCapabilities.FLATTENING,
        PluginCapabilities.STRUCTURED_LOGGING,
        TargetCapabilities.HARD_DELETE,
        TargetCapabilities.SOFT_DELETE,
        TargetCapabilities.VALIDATE_RECORDS,
    ]
    _written: ClassVar[int | None] = None
    """When the config files of the command line were written, in ns."""
    _beside: ClassVar[Path | None] = None
    """The folder of the last one."""
    _printed = ""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.message_reader = _WholeInput(self._load)

    def _validate_config(self, *, raise_errors: bool = True) -> list[str]:
        """Give keys the dots back that Meltano took, and add "did you mean" to the SDK's errors."""
        try:
            self._config = as_written(self._config, os.environ)
            return super()._validate_config(raise_errors=raise_errors)
        except ConfigValidationError as error:
            properties = self.config_jsonschema["properties"]
            unknown = [str(name) for name in self._config if name not in properties]
            error.errors += [f"{name}: {guess}" for name in unknown if (guess := did_you_mean(name, properties))]
            raise

    def _load(self, file: IO[Any]) -> Counter[str]:
        """Load a file's messages. Raises the SDK's error if it has one for the case, otherwise ours."""
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would complain when we stop the JVM
        try:
            pipeline = pipeline_of(self.config, os.environ)
            os.environ.update(aws_credentials(self.config))
            stdin, result = self._run(pipeline, file)
        except BridgeError as error:
            _raise(error)
        if self.config.get("batch_config"):
            self.logger.warning("batch_config has no effect: a BATCH message says where its files are")
        self._tell(result)
        if result.error:
            _raise(result.error)
        if make_in_background(pipeline.spark.master, asked=False):
            self.logger.info("%s", ANNOUNCEMENT)
        return stdin.counts

    def _run(self, pipeline: Pipeline, file: IO[Any]) -> tuple[Stdin, Result]:
        through = {"through": Mapped(self.mapper)} if any(self.config.get(key) for key in _MAPPING) else {}
        activates = bool(self.config.get("process_activate_version_messages", True))
        stdin = Stdin(getattr(file, "buffer", file), activates=activates, **through)
        tap = pipeline.source.argv[0]
        accepts = self.config.get("on_missing_rows") == "warn"
        piped = Piped(tap, stdin, self._print, self._started_with(), accepts_missing=accepts)
        # If somebody killed Meltano, its target may still be committing what it has, and is done soon.
        wait = timedelta(minutes=1) if "MELTANO_LOADER_NAME" in os.environ else None
        run = Run(pipeline, Request(wait=wait), _home(), piped=piped)
        result = run.execute()
        if run.storage and not isinstance(result.error, LakeError):
            result.warnings += after_run(run.storage, pipeline, result.run_id)
        if not result.error:
            piped.check()
        return stdin, result

    def _started_with(self) -> Start | None:
        if given := self.config.get("start_state"):
            return given_state(Path(given).absolute())
        return meltano_state(os.environ, self._written, self._beside)

    def _print(self, state: Any) -> None:
        """Write a STATE on a line; called in the thread that commits."""
        text = dumps(state).decode()
        if text == self._printed:
            return
        self._printed = text
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            with suppress(OSError):  # otherwise Python tries again when it ends, and complains
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise

    def _tell(self, result: Result) -> None:
        for warning in result.warnings:
            self.logger.warning(plain(warning))
        for stream, counts in result.streams.items():
            facts = plain(stream), counts.committed, counts.load_method, counts.rejected
            self.logger.info("%s: %d records committed (%s), %d rejected", *facts)
        for move in result.moves():
            self.logger.info("%s", plain(move))
        took = duration(result.seconds.get("total", 0.0))
        self.logger.info("Run %s: %s, %d commits, %s", result.run_id, result.status, result.commits, took)

    @classmethod
    def cb_config(cls, ctx: click.Context, param: click.Option, value: tuple[str, ...]) -> Any:
        """Read the config files at once, as Meltano may delete them, and note when they were written."""
        config = super().cb_config(ctx, param, value)
        cls._written = min((os.stat(file).st_mtime_ns for file in value if file != "ENV"), default=None)
        cls._beside = next((Path(file).absolute().parent for file in reversed(value) if file != "ENV"), None)
        return config

    @classmethod
    def invoke(cls, **given: Any) -> None:
        """Run the command. A failure is logged, with what to do about it, and decides the exit code."""
        try:
            super().invoke(**given)
        except Exception as error:
            failed = error if isinstance(error, BridgeError) else error.__cause__
            if not isinstance(failed, BridgeError):
                raise
            cls.logger.error(plain(failed.message))  # noqa: TRY400 - a traceback would not help the user
            for line in failed.hint.splitlines():
                cls.logger.error("  %s", plain(line))  # noqa: TRY400
            if "--full" in failed.hint:
                cls.logger.error("  %s", _ANEW)  # noqa: TRY400
            sys.exit(failed.exit_code)


def _raise(error: BridgeError) -> NoReturn:
    """Raise the SDK's own error for this case if it has one."""
    if isinstance(error, RecordBeforeSchema):
        raise RecordsWithoutSchemaException(error.message) from error
    if error.facts.get("reason") in _KEY:
        raise MissingKeyPropertiesError(error.message) from error
    raise error


def _home() -> Path:
    """Where scratch goes: beside Meltano's own, if Meltano runs us."""
    meltano = os.environ.get("MELTANO_SYS_DIR_ROOT")
    return Path(meltano) / "singer-bridge" if meltano and "SINGER_BRIDGE_HOME" not in os.environ else home_folder(None)
