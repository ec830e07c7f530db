"""The plugins' definitions for Meltano, made from what `target-bridge --about` and `tap-bridge --about` say.

`target-bridge.yml` and `tap-bridge.yml` of `deploy/meltano` are for `meltano add --from-ref`; the files below `hub/`
are entries for the hub of plugins. `python -m target_bridge.plugin deploy/meltano` writes them again. Without a folder
it prints the definition of the target, or with `tap` that of the tap: to be installed from where this package itself
came from. Both also come with their packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from target_bridge.settings import ALIASES

_VALUES = {"path": "$MELTANO_EXTRACT__LOAD_SCHEMA", "pipeline": "$MELTANO_ENVIRONMENT.$MELTANO_EXTRACTOR_NAME"}
"""Defaults that only Meltano can know: its own folder, and its own commit log, for each extractor."""
_KINDS = {"boolean": "boolean", "integer": "integer", "number": "decimal", "array": "array", "object": "object"}
_VARIANT = _PACKAGE = "singer-bridge"
_LOADS = "Loads any tap into a lake of Parquet, Delta or Iceberg tables, each row exactly once, on Spark"
_READS = "Reads the tables and views of a Singer Bridge lake, commit by commit: new rows, changed rows, deletions"
_UNKNOWN = "validate-records"
"""A capability that the hub knows, and the schema of a Meltano project does not; nothing depends on it."""
_HEADER = "# Made by `python -m target_bridge.plugin deploy/meltano` from what `{} --about` says.\n"
_KEYWORDS = ["meltano_sdk", "file", "parquet", "delta", "iceberg"]


def about(module: str = "target_bridge") -> dict[str, Any]:
    """The answer of the installed target, or of the tap, about itself."""
    words = [sys.executable, "-m", module, "--about", "--format=json"]
    answer: dict[str, Any] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def installed_from() -> str:
    """The source from which pip installs this package again: the index, by name; or the clone, wheel or repository."""
    facts = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "{}")
    url, repository = str(facts.get("url") or _PACKAGE), facts.get("vcs_info")
    return f"{repository['vcs']}+{url}@{repository['commit_id']}" if repository else url


def plugin_files(target: dict[str, Any], tap: dict[str, Any]) -> dict[str, str]:
    """The files' texts by their paths below deploy/meltano."""
    loader = _definition(target, "target-bridge", "Singer Bridge", _LOADS)
    parquet = _definition(target, "target-parquet", "Parquet", _LOADS)
    extractor = _definition(tap, "tap-bridge", "Singer Bridge", _READS) | {"select": ["*.*"]}
    return {
        "target-bridge.yml": _HEADER.format("target-bridge") + _text(loader),
        "tap-bridge.yml": _HEADER.format("tap-bridge") + _text(extractor),
        "hub/loaders/target-bridge/singer-bridge.yml": _text(loader | _page("https://spark.apache.org/", _SPARK)),
        "hub/loaders/target-parquet/singer-bridge.yml": _text(parquet | _page("https://parquet.apache.org/", _SPARK)),
        "hub/extractors/tap-bridge/singer-bridge.yml": _text(extractor | _page("https://parquet.apache.org/")),
    }


def _definition(about: dict[str, Any], name: str, label: str, description: str) -> dict[str, Any]:
    loads = name.startswith("target")
    values = _VALUES if loads else {}
    return {
        "name": name,
        "namespace": name.replace("-", "_"),
        "variant": _VARIANT,
        "label": label,
        "description": description,
        "pip_url": _PACKAGE,
        "executable": "target-bridge" if loads else name,
        "capabilities": sorted(set(about["capabilities"]) - {_UNKNOWN}),
        "settings_group_validation": [["bucket"]],
        "settings": [
            entry | ({"value": values[entry["name"]]} if entry["name"] in values else {})
            for entry in _settings(about["settings"]["properties"])
        ],
    }


_UNRATED = {"quality": "unknown"}
"""The hub rates a plugin itself."""
_SPARK = {"prereq": "None on Linux and macOS, with x86-64 or ARM; elsewhere Java 17 or newer."}


def _page(domain: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """The facts that only the hub's page of a plugin has."""
    keywords = [*_KEYWORDS, "spark"] if more else _KEYWORDS
    return {"domain_url": domain, "keywords": keywords, "maintenance_status": "active", **_UNRATED, **(more or {})}


def _settings(properties: dict[str, Any], inside: str = "") -> Iterator[dict[str, Any]]:
    """The settings; an object with known keys is one setting for each key, named by its path."""
    own = {alias: name for alias, name in ALIASES.items() if alias in properties}
    other = {name: [alias for alias, real in own.items() if real == name] for name in own.values()}
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
    value = schema.get("default")
    return entry if value is None else {**entry, "value": value}


def _title(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").title()


def _text(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))


if __name__ == "__main__":
    files = plugin_files(about(), about("tap_bridge"))
    if sys.argv[1:] in ([], ["tap"]):
        text = files["tap-bridge.yml" if sys.argv[1:] else "target-bridge.yml"]
        sys.stdout.write(text.replace(f"\npip_url: {_PACKAGE}\n", f"\npip_url: {installed_from()}\n"))
    for path, text in files.items() if sys.argv[1:] not in ([], ["tap"]) else ():
        file = Path(sys.argv[1]) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
