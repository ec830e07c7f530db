"""Settings of an Iceberg catalog: what pyiceberg takes, but no secrets, since the bucket stores them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from bridge.settings.redact import SECRET_KEY
from bridge.settings.values.checked import wrong

_SECRET = re.compile(
    r"password|passwd|secret|token$|credential|access[-_.]?key|api[-_]?key|private|authorization", re.IGNORECASE
)
_KEYS_IN_URI = re.compile(r"://[^/:]*:[^@]*@|https?://[^/?#\s]*@")
"""A user and a password before a host. SQLAlchemy takes a password up to the `@`, also one with a slash."""
_KEYS_IN_TEXT = re.compile(r"://\S*@")
_SECRET_PARAMETER = re.compile(rf"{SECRET_KEY.pattern}|^(?:key|pass|cookie)$", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&;])([^=&;\s]+)=[^&;\s]*")
_ALLOWED = re.compile(
    r"warehouse|prefix|scope|audience|resource|oauth2-server-uri|rest-page-size|namespace-separator"
    r"|rest\.(sigv4-enabled|signing-region|signing-name|sigv4\.max-retries)"
    r"|snapshot-loading-mode|scan-planning-mode|view-endpoints-supported"
    r"|echo|pool_pre_ping|init_catalog_tables|schema_version"
    r"|glue\.(id|skip-archive|endpoint|profile-name|region|max-retries|retry-mode)"
    r"|hive\.(hive2-compatible|kerberos-authentication|kerberos-service-name)|ugi"
    r"|lock-check-(min-wait-time|max-wait-time|retries)"
    r"|table-name|dynamodb\.(profile-name|region)|gcp\.bigquery\.(project-id|location)"
    r"|client\.(region|profile-name|role-arn|role-session-name)|s3\.(endpoint|region|force-virtual-addressing)"
)
"""The properties of a catalog that name no class for pyiceberg to import, no file to write, and no secret."""
_ABOUT_TABLES = re.compile(
    r"type|warehouse|prefix|namespace-separator|rest-page-size|snapshot-loading-mode|scan-planning-mode"
    r"|view-endpoints-supported|glue\.(id|skip-archive)|table-name|hive\.hive2-compatible|lock-check-.*|schema_version"
)
"""The properties that choose among a catalog's tables and ways, but no host, no identity and no secret to send."""
_HEADERS = frozenset(
    {"accept", "accept-language", "content-type", "polaris-realm", "user-agent", "x-client-version"}
    | {"x-goog-user-project", "x-iceberg-access-delegation", "x-project-id"}
)
"""The headers of requests to a REST catalog that hold no secret; any other one may."""
_TYPES = frozenset({"rest", "hive", "glue", "dynamodb", "sql", "bigquery"})
_URI = re.compile(r"(https?|thrift|sqlite|(postgresql|mysql|mariadb)(\+\w+)?)://")
_LEVELS = re.compile(r"[^.\s{}]+(\.[^.\s{}]+)*")
_SET_BY_US = {
    "name": "write destination.catalog.name",
    "py-io-impl": "leave it out: files are reached as destination.bucket and destination.s3 say",
}


NAMED: dict[tuple[str, str], dict[str, str]] = {}
"""The catalogs that this process' settings name, by name and address, with all of their properties.

Secrets of this machine go only to these, and to those of pyiceberg's own configuration: a bucket names no host."""


def address(properties: Mapping[str, Any]) -> str:
    """Where a catalog is: its URI, or of one that has none, as AWS Glue, its type."""
    return str(properties.get("uri") or properties.get("type") or "")


def levels(value: Any) -> Any:
    """Refuse empty levels and unknown placeholders."""
    if isinstance(value, str) and not _LEVELS.fullmatch(value.replace("{pipeline}", "x")):
        raise wrong("must be names with dots between them", hint="such as raw.{pipeline}; there is only {pipeline}")
    return value


def is_harmless(key: str, value: Any) -> bool:
    """Whether a property of a catalog may come from a bucket, into which others may write, too."""
    if not isinstance(value, str):
        return False
    if key == "type":
        return value.lower() in _TYPES
    if key == "uri":
        return _URI.match(value) is not None
    if key.startswith("header."):
        return key.removeprefix("header.").lower() in _HEADERS
    return _ALLOWED.fullmatch(key) is not None


def is_about_tables(key: str, value: Any) -> bool:
    """Whether a property may come from a bucket or a server's answer, also where this machine's secrets are sent."""
    return isinstance(value, str) and _ABOUT_TABLES.fullmatch(key) is not None


def without_secrets(text: str) -> str:
    """A message about a catalog, without users and passwords of URIs in it, and without their secret parameters."""
    return _PARAMETER.sub(_masked, _KEYS_IN_TEXT.sub("://", text))


def _masked(parameter: re.Match[str]) -> str:
    return f"{parameter[1]}=***" if _SECRET_PARAMETER.search(unquote_plus(parameter[1])) else parameter[0]


def _has_secret(text: str) -> bool:
    """Whether a property's value has a password in it, or a parameter whose name says that it is secret."""
    return _KEYS_IN_URI.search(text) is not None or _PARAMETER.sub(_masked, text) != text


def catalog_properties(value: Any) -> Any:
    """Refuse secrets, without showing them, and paths that depend on the current folder."""
    if not isinstance(value, dict):
        return value
    for key, text in ((str(key), str(text)) for key, text in value.items()):
        if key in _SET_BY_US:
            raise wrong("not to be set here", hint=_SET_BY_US[key], at=key)
        variable = f"PYICEBERG_CATALOG__<NAME>__{key.upper().replace('-', '_').replace('.', '__')}"
        if _SECRET.search(key) or _has_secret(text):
            hint = f"the bucket keeps these properties. Set {variable} in the environment, or use ~/.pyiceberg.yaml"
            raise wrong("no secrets here", hint=hint, at=key)
        if not is_harmless(key, text):
            hint = f"the bucket keeps these properties, and others may write to it. Set {variable} in the environment"
            raise wrong("not to be kept in a bucket", hint=hint, at=key)
        if key == "uri" and text.startswith("sqlite:///") and not text.startswith("sqlite:////"):
            hint = "four slashes: sqlite:////data/catalog.db; who repairs the lake may be in another folder"
            raise wrong("the file needs an absolute path", hint=hint, at=key)
    return value
