"""Where a bucket is: its URI, and the addresses and names that reach it. No error shows a value that may hold a key."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationInfo

from bridge.settings.values.checked import NOT_IN_PATHS, rooted, wrong

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_BUCKETS = {
    # What AWS takes, and the underscore that other stores do.
    "s3": (re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "an S3 bucket", "letters, digits, dots and hyphens"),
    "az": (re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}|\$root"), "a container of Azure", "letters, digits and hyphens"),
    "gs": (
        re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        "a bucket of Google",
        "letters, digits, dots and hyphens",
    ),
}
"""By scheme: a bucket's name, what it is, and which characters it may have."""
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_HOST = re.compile(r"(?P<account>[a-z0-9]{3,24})\.dfs\.[a-z0-9.-]+")
_KINDS = "a folder such as ./lake, or s3://lake/team, az://lake/team or gs://lake/team"
_OTHER_WORDS = {
    "s3a": "s3",
    "s3n": "s3",
    "abfs": "abfss",
    "wasb": "az",
    "wasbs": "az",
    "azure": "az",
    "adl": "az",
    "gcs": "gs",
}
"""Schemes that other tools write, and ours for the same place."""


def bucket_uri(value: Any, info: ValidationInfo) -> Any:
    """The bucket as an absolute path, or as a URI of a store without a slash at its end."""
    if not isinstance(value, str | Path) or not str(value):
        raise wrong("must be a folder or the address of a bucket", hint=f"such as {_KINDS}")
    text = str(value)
    scheme = _SCHEME.match(text)
    if not scheme:
        return str(rooted(text, info))
    kind, rest = scheme[1].lower(), text[scheme.end() :]
    if kind in _BUCKETS:
        return "/".join((f"{kind}:/", *_bucket_and_prefix(kind, rest)))
    if kind == "abfss":
        return _abfss(rest)
    if kind in _OTHER_WORDS:
        raise wrong(f"{kind}:// is another tool's word", hint=f"write {_OTHER_WORDS[kind]}://, and the rest as it is")
    if kind != "file":
        hint = f"give {_KINDS}"
        if kind in ("http", "https"):
            hint += "; the address of a server stands in endpoint_url of destination.s3, azure or gcs"
        raise wrong(f"unknown kind of bucket {scheme[1]}://", hint=hint)
    url = urlsplit(text)
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise wrong("a file URI needs an absolute path", hint="three slashes: file:///data/lake")
    return unquote(url.path)


def _abfss(text: str) -> str:
    """Check what follows `abfss://`: Hadoop's and Spark's word for a container of an account."""
    place, *parts = text.rstrip("/").split("/")
    container, at, host = place.partition("@")
    if not at or not _HOST.fullmatch(host):
        hint = "write abfss://container@account.dfs.core.windows.net/prefix, or az://container/prefix"
        raise wrong("not the address of a container", hint=hint)
    name, *parts = _bucket_and_prefix("az", "/".join((container, *parts)))
    return "/".join((f"abfss://{name}@{host}", *parts))


def _bucket_and_prefix(kind: str, text: str) -> list[str]:
    """Check what follows a scheme. Errors never show it, as it may hold a key."""
    bucket, *parts = text.rstrip("/").split("/")
    pattern, what, characters = _BUCKETS[kind]
    if "@" in bucket:
        hint = f"write {kind}://bucket/prefix; keys come from the environment, a profile or a role"
        raise wrong("no keys in the address of a bucket", hint=hint)
    if not pattern.fullmatch(bucket) or ".." in bucket or _IP_ADDRESS.fullmatch(bucket):
        hint = f"3 to 63 lower-case {characters}, such as {kind}://lake/team"
        raise wrong(f"not the name of {what}", hint=hint)
    if any(part in ("", ".", "..") for part in parts):
        raise wrong("the prefix has an empty part or a dot", hint=f"such as {kind}://lake/team, with single slashes")
    if NOT_IN_PATHS.search("/".join(parts)):
        raise wrong("a character that the prefix cannot have", hint='leave out \\ % = : ? * " < > | { }')
    return [bucket, *parts]


def storage_account(value: Any) -> Any:
    """Refuse anything but an account's bare name."""
    if isinstance(value, str) and not _ACCOUNT.fullmatch(value):
        hint = "3 to 24 lower-case letters and digits; the address of an endpoint stands in endpoint_url"
        raise wrong("not the name of a storage account", hint=hint)
    return value


def signing_key(value: Any) -> Any:
    """Refuse what Azure's library could not sign with, without showing it."""
    if isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except ValueError:
            hint = "copy key1 or key2 of the account's access keys; a token with sig= in it goes into sas_token"
            raise wrong("not the key of a storage account", hint=hint) from None
    return value


def signature(value: Any) -> Any:
    """Refuse what has no signature, and a whole URL, without showing it."""
    if isinstance(value, str) and value and ("sig=" not in value or "://" in value):
        hint = "copy what follows the ? of the SAS URL: sv=...&sig=...; a key goes into account_key"
        raise wrong("not a SAS token", hint=hint)
    return value


def blob_endpoint(value: Any) -> Any:
    """The address of a blob endpoint. An emulator's has the account's name as its path."""
    if not isinstance(value, str):
        return value
    address, _, account = value.rstrip("/").rpartition("/")
    if not address or address.endswith(":/"):  # only a host
        return endpoint(value)
    return f"{endpoint(address)}/{storage_account(account)}"


def endpoint(value: Any) -> Any:
    """The address of a store's server. One with a password is refused without being shown."""
    if not isinstance(value, str):
        return value
    try:
        url = urlsplit(value)
        named, _ = url.hostname, url.port
    except ValueError:
        url, named = urlsplit(""), None
    if url.scheme not in ("http", "https") or not named:
        raise wrong("must be the address of a server", hint="such as https://minio.example.com:9000")
    if "@" in url.netloc:
        hint = "leave user and password out; keys come from the environment, a profile or a role"
        raise wrong("no keys in the address of a server", hint=hint)
    if url.path.strip("/") or url.query or url.fragment:
        hint = "scheme, host and port only: the bucket stands in destination.bucket"
        raise wrong("must be the address of a server alone", hint=hint)
    return value.rstrip("/")


def arn_of_role(value: Any) -> Any:
    """Refuse anything but a role's ARN, such as a user's ARN or a bare name."""
    if isinstance(value, str) and not re.fullmatch(r"arn:[a-z0-9-]+:iam::[^:]*:role/\S+", value):
        raise wrong("must be the ARN of a role", hint="such as arn:aws:iam::123456789012:role/lake")
    return value


def storage_class(value: Any) -> Any:
    """Refuse the archives with the reason."""
    if value in ("GLACIER", "DEEP_ARCHIVE"):
        raise wrong("an archive cannot be read", hint="GLACIER_IR is the cheapest class that tables can be read from")
    return value
