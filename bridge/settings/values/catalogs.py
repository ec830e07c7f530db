"""Settings of an Iceberg catalog: what pyiceberg takes, but no secrets, since the bucket stores them."""

from __future__ import annotations

import re
from typing import Any

from bridge.settings.values.checked import wrong

_SECRET = re.compile(
    r"password|passwd|secret|token$|credential|access[-_.]?key|api[-_]?key|private|authorization", re.IGNORECASE
)
_KEYS_IN_URI = re.compile(r"://[^/\s]*:[^/\s]*@")
_LEVELS = re.compile(r"[^.\s{}]+(\.[^.\s{}]+)*")
_OURS = {
    "name": "write destination.catalog.name",
    "py-io-impl": "leave it out: files are reached as destination.bucket and destination.s3 say",
}


def levels(value: Any) -> Any:
    """Refuse empty levels and unknown placeholders."""
    if isinstance(value, str) and not _LEVELS.fullmatch(value.replace("{pipeline}", "x")):
        raise wrong("must be names with dots between them", hint="such as raw.{pipeline}; there is only {pipeline}")
    return value


def catalog_properties(value: Any) -> Any:
    """Refuse secrets, without showing them, and paths that depend on the current folder."""
    if not isinstance(value, dict):
        return value
    for key, text in ((str(key), str(text)) for key, text in value.items()):
        if key in _OURS:
            raise wrong("not to be set here", hint=_OURS[key], at=key)
        if _SECRET.search(key) or _KEYS_IN_URI.search(text):
            variable = f"PYICEBERG_CATALOG__<NAME>__{key.upper().replace('-', '_').replace('.', '__')}"
            hint = f"the bucket keeps these properties. Set {variable} in the environment, or use ~/.pyiceberg.yaml"
            raise wrong("no secrets here", hint=hint, at=key)
        if key == "uri" and text.startswith("sqlite:///") and not text.startswith("sqlite:////"):
            hint = "four slashes: sqlite:////data/catalog.db; who repairs the lake may be in another folder"
            raise wrong("the file needs an absolute path", hint=hint, at=key)
    return value
