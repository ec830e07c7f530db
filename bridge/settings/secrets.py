"""The secrets of a pipeline: collected from its settings, and never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge.settings.explain import ErrorPlace
from bridge.settings.options import Pipeline
from bridge.settings.receivers import secrets_of
from bridge.settings.redact import SPARK_SECRET, learn, learn_arguments, worth_hiding
from bridge.settings.text.tree import Expansion, Key


def with_secrets(pipeline: Pipeline, expanded: list[tuple[Key, Expansion]], place: ErrorPlace) -> Pipeline:
    """The pipeline with all its secrets, including those of its config file. Raises `SettingsError`."""
    source = pipeline.source
    config = config_file(source.config, place) if isinstance(source.config, Path) else source.config
    arguments = source.argv[1:] if source.tap else []
    texts = [piece.text for key, piece in expanded if _may_hold_secrets(key, piece.text, arguments)]
    texts += learn([piece.text for _, piece in expanded if piece.of_command], under_secret_key=True)
    texts += learn([config, source.env, source.pip_url, source.replication_slot.url])
    texts += learn_arguments(arguments)
    texts += [text for key, text in pipeline.spark.conf.items() if SPARK_SECRET.search(key)]
    texts += learn(list(pipeline.spark.conf.values()))
    azure = pipeline.destination.azure
    texts += learn({"sas_token": azure.sas_token, "account_key": azure.account_key} if azure else {})
    texts += secrets_of(pipeline.notify, pipeline.openlineage)
    texts += learn(pipeline.mask_key, under_secret_key=True)
    return pipeline.model_copy(update={"secrets": worth_hiding(texts)})


def _may_hold_secrets(key: Key, text: str, arguments: list[str]) -> bool:
    """Whether a variable's value may be a secret: it went to the tap's settings, environment, address or arguments."""
    if key[:2] in (("source", "config"), ("source", "env")):
        return len(key) > 2
    if key[:2] == ("source", "tap"):
        return any(text in argument for argument in arguments)
    return (
        key == ("source", "pip_url")
        or (key[:1] == ("notify",) and key[-1:] == ("url",))
        or key == ("openlineage", "url")
    )


def shown_to_all(key: Key) -> tuple[str, str] | None:
    """Why a command's output cannot stand at a key, and what to do: command lines are seen by everyone on a machine."""
    if key[:2] == ("source", "tap"):
        return (
            "a tap's arguments are seen in the list of processes",
            "write the secret into source.config or source.env",
        )
    if key[:2] == ("source", "pip_url"):
        hint = "have uv find it: in ~/.netrc, by git's credential helper, or in UV_INDEX_* of the environment"
        return "an installer's arguments are seen in the list of processes", hint
    if key[:2] == ("spark", "conf") and not SPARK_SECRET.search(str(key[-1])):
        hint = "Spark hides keys with secret, password, token, credential or access.key in their names"
        return "Spark's settings are seen in the list of processes", hint
    return None


def config_file(path: Path, place: ErrorPlace) -> dict[str, Any]:
    """Read the tap's settings for their secrets; the tap gets the file itself. Raises `SettingsError`."""
    at: Key = ("source", "config")
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = "give a JSON file, or the settings themselves"
        raise place.error(at, "cannot read the tap's settings", hint, reason=error.strerror, path=path) from None
    except ValueError as error:
        line = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "not UTF-8"
        raise place.error(at, f"the tap's settings are not valid JSON: {line}", "taps read JSON", path=path) from None
    if not isinstance(config, dict):
        raise place.error(at, "the tap's settings must be a JSON object", 'such as {"host": "localhost"}', path=path)
    return config
