"""The plugin's definition for Meltano, made from what `target-bridge --about` says about itself.

`deploy/meltano/target-bridge.yml` is for `meltano add --from-ref`; the files below `hub/` are entries for the hub of
plugins. `python -m target_bridge.plugin deploy/meltano` writes them again. Without a folder it prints the first one,
which also comes with the package, beside this file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from target_bridge.settings import ALIASES

_VALUES = {"path": "$MELTANO_EXTRACT__LOAD_SCHEMA", "pipeline": "$MELTANO_ENVIRONMENT.$MELTANO_EXTRACTOR_NAME"}
"""Defaults that only Meltano can know: its own folder, and its own commit log, for each extractor."""
_KINDS = {"boolean": "boolean", "integer": "integer", "number": "decimal", "array": "array", "object": "object"}
_VARIANT = "singer-bridge"
_SHORT = "Loads any tap into a lake of Parquet, Delta or Iceberg tables, each row exactly once, on Spark"
_HEADER = "# Made by `python -m target_bridge.plugin deploy/meltano` from what `target-bridge --about` says.\n"


def about() -> dict[str, Any]:
    """What the installed target says about itself."""
    words = [sys.executable, "-m", "target_bridge", "--about", "--format=json"]
    answer: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def plugin_files(about: dict[str, Any]) -> dict[str, str]:
    """The files' texts by their paths below deploy/meltano."""
    definition = _definition(about, "target-bridge", "Singer Bridge")
    parquet = _definition(about, "target-parquet", "Parquet")
    return {
        "target-bridge.yml": _HEADER + _text(definition),
        "hub/loaders/target-bridge/singer-bridge.yml": _text({**definition, **_page("https://spark.apache.org/")}),
        "hub/loaders/target-parquet/singer-bridge.yml": _text({**parquet, **_page("https://parquet.apache.org/")}),
    }


def _definition(about: dict[str, Any], name: str, label: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": name.replace("-", "_"),
        "variant": _VARIANT,
        "label": label,
        "description": _SHORT,
        "pip_url": "singer-bridge",
        "executable": "target-bridge",
        "capabilities": sorted(about["capabilities"]),
        "settings_group_validation": [["bucket"]],
        "settings": list(_settings(about["settings"]["properties"])),
    }


def _page(domain: str) -> dict[str, Any]:
    """What only the hub's page of a plugin has."""
    return {
        "domain_url": domain,
        "keywords": ["meltano_sdk", "file", "parquet", "delta", "iceberg", "spark"],
        "maintenance_status": "active",
        "prereq": "Java 17 or newer: `java` on the PATH, or JAVA_HOME.",
    }


def _settings(properties: dict[str, Any], inside: str = "") -> Iterator[dict[str, Any]]:
    """The settings; an object with known keys is one setting for each key, named by its path."""
    other = {name: [alias for alias, real in ALIASES.items() if real == name] for name in ALIASES.values()}
    for name, schema in properties.items():
        inner = schema.get("properties", {})
        if inner and not any(key.startswith("_") for key in inner):
            yield from _settings(inner, f"{inside}{name}.")
        elif inside or name not in ALIASES:
            yield _setting(f"{inside}{name}", schema, [] if inside else other.get(name, []))


def _setting(name: str, schema: dict[str, Any], aliases: list[str]) -> dict[str, Any]:
    kinds = schema.get("type", "string")
    kind = next((_KINDS[one] for one in ([kinds] if isinstance(kinds, str) else kinds) if one in _KINDS), "string")
    entry: dict[str, Any] = {"name": name}
    if aliases:
        entry["aliases"] = aliases
    entry |= {"label": schema.get("title") or _title(name), "kind": kind}
    choices = [choice for choice in schema.get("enum", ()) if choice is not None]
    if choices:
        entry |= {"kind": "options", "options": [{"label": _title(choice), "value": choice} for choice in choices]}
    if description := schema.get("description"):
        entry["description"] = description
    if schema.get("secret") or schema.get("writeOnly"):
        entry["sensitive"] = True
    value = _VALUES.get(name, schema.get("default"))
    return entry if value is None else {**entry, "value": value}


def _title(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").title()


def _text(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))


if __name__ == "__main__":
    files = plugin_files(about())
    if len(sys.argv) == 1:
        sys.stdout.write(files["target-bridge.yml"])
    for path, text in files.items() if len(sys.argv) > 1 else ():
        file = Path(sys.argv[1]) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
