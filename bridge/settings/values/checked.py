"""Values of settings, checked and normalised.

Errors are pydantic's own kind, so that they carry the key; `bridge.settings.explain` adds file and line.
None of them shows a value that may be secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.values.units import parse_duration

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# What AWS takes, and the underscore that other stores do.
_S3_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_KINDS = "a folder such as ./lake, or s3://lake/team"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# These stand in <bucket>/.bridge beside the pipelines' folders.
_TAKEN_NAMES = frozenset({"tables", "lake.json", "catalog.db"})
# The characters a stream's folder encodes too; `a=b` would be a phantom column to DuckDB.
_NOT_IN_PATHS = re.compile(r'[\\%=:?*"<>|{}\x00-\x1f\x7f]')


def wrong(text: str, hint: str = "", at: str = "") -> PydanticCustomError:
    """The error for a wrong value of the right type. `at`: the key below this one, if it is not this one."""
    return PydanticCustomError("wrong_value", "{text}", {"text": text, "hint": hint, "at": at})


def parsed(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Call a parser that raises SettingsError, and turn that into an error that gets file and line."""

    def validate(value: Any) -> Any:
        if isinstance(value, timedelta):
            return value
        try:
            return parse(value)
        except SettingsError as error:
            raise wrong(error.message, error.hint) from None

    return BeforeValidator(validate)


def _folder(info: ValidationInfo) -> Path:
    """The folder of the settings file that has this key."""
    return Path((info.context or {}).get("folders", {}).get(info.field_name) or Path.cwd())


def _rooted(text: str, info: ValidationInfo) -> Path:
    try:
        return _folder(info) / Path(text).expanduser()
    except RuntimeError:
        raise wrong("no such user in ~", hint="write the whole path") from None


def file_path(value: Any, info: ValidationInfo) -> Any:
    """The path, relative to the settings file's folder."""
    if isinstance(value, Path):
        value = str(value)
    if value == "":
        raise wrong("must not be empty", hint="give a path or remove the key")
    return _rooted(value, info) if isinstance(value, str) else value


def tap_config(value: Any, info: ValidationInfo) -> Any:
    """The tap's settings, or the path of their file. An empty value means no settings."""
    if value is None:
        return {}
    if not isinstance(value, str | dict | Path):
        raise wrong(
            "must be a mapping, or the path of a JSON file", hint="write the tap's settings below it, or a path"
        )
    return value if isinstance(value, dict) else file_path(value, info)


def tap_command(value: Any, info: ValidationInfo) -> Any:
    """Split the command; an executable given as a path is relative to the settings, like every other path."""
    if isinstance(value, list) and not all(isinstance(part, str) for part in value):
        raise wrong("must be text or a list of texts", hint="quote numbers")
    try:
        argv = value if isinstance(value, list) else shlex.split(value) if isinstance(value, str) else None
    except ValueError:
        raise wrong("quotes are not closed", hint="write the arguments as a list") from None
    if argv is None:
        raise wrong("must be text or a list of texts", hint="such as tap-postgres, or [tap-postgres, --flag]")
    if not argv or not argv[0]:
        raise wrong("must not be empty", hint="give the tap's command")
    if "/" in argv[0]:
        return [str(_rooted(argv[0], info)), *argv[1:]]
    return value


def bucket_uri(value: Any, info: ValidationInfo) -> Any:
    """The bucket as an absolute path, or as `s3://bucket/prefix` without a slash at its end."""
    if not isinstance(value, str | Path) or not str(value):
        raise wrong("must be a folder or an s3:// address", hint="such as ./lake, file:///data/lake or s3://lake/team")
    text = str(value)
    scheme = _SCHEME.match(text)
    if not scheme:
        return str(_rooted(text, info))
    kind = scheme[1].lower()
    if kind == "s3":
        return _s3_uri(text[scheme.end() :])
    if kind in ("s3a", "s3n"):
        raise wrong(f"{kind}:// is Hadoop's word", hint="write s3://, and the rest as it is")
    if kind != "file":
        hint = f"give {_KINDS}"
        if kind in ("http", "https"):
            hint += "; the address of an S3 server stands in destination.s3.endpoint_url"
        elif kind in ("gs", "gcs", "az", "abfs", "abfss", "wasb", "wasbs"):
            hint += "; a store of another kind needs an S3 server before it that keeps conditional writes"
        raise wrong(f"unknown kind of bucket {scheme[1]}://", hint=hint)
    url = urlsplit(text)
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise wrong("a file URI needs an absolute path", hint="three slashes: file:///data/lake")
    return unquote(url.path)


def _s3_uri(text: str) -> str:
    """Check what follows `s3://`. Errors never show it, as it may hold a key."""
    bucket, *parts = text.rstrip("/").split("/")
    if "@" in bucket:
        hint = "write s3://bucket/prefix; keys come from the environment, a profile or a role"
        raise wrong("no keys in the address of a bucket", hint=hint)
    if not _S3_BUCKET.fullmatch(bucket) or ".." in bucket or _IP_ADDRESS.fullmatch(bucket):
        hint = "3 to 63 lower-case letters, digits, dots and hyphens, such as s3://lake/team"
        raise wrong("not the name of an S3 bucket", hint=hint)
    if any(part in ("", ".", "..") for part in parts):
        raise wrong("the prefix has an empty part or a dot", hint="such as s3://lake/team, with single slashes")
    if _NOT_IN_PATHS.search("/".join(parts)):
        raise wrong("a character that the prefix cannot have", hint='leave out \\ % = : ? * " < > | { }')
    return "/".join(("s3:/", bucket, *parts))


def endpoint(value: Any) -> Any:
    """The address of an S3 server. One with a password is refused without being shown."""
    if not isinstance(value, str):
        return value
    try:
        url = urlsplit(value)
        named, _ = url.hostname, url.port
    except ValueError:
        url, named = urlsplit(""), None
    if url.scheme not in ("http", "https") or not named:
        raise wrong("must be the address of an S3 server", hint="such as https://minio.example.com:9000")
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


def named(value: Any) -> Any:
    """Refuse an empty text, which would mean something else than a missing key."""
    if isinstance(value, str) and (not value or value != value.strip()):
        raise wrong("must not be empty", hint="give a name or remove the key")
    return value


def table_path(value: Any) -> Any:
    """Refuse names that readers skip (`.hidden`), paths out of the bucket, and unknown placeholders."""
    if not isinstance(value, str):
        return value
    for name in _PLACEHOLDER.findall(value):
        if name not in ("pipeline", "tap"):
            raise wrong(f"unknown placeholder {{{name}}}", hint="there are {pipeline} and {tap}")
    plain = _PLACEHOLDER.sub("x", value)
    parts = plain.split("/")
    if not all(parts):
        raise wrong("must be a relative path without empty parts", hint='such as "{pipeline}" or raw/{tap}')
    if any(part.startswith(".") for part in parts):
        raise wrong("no part of the path may start with a dot", hint="readers skip such folders")
    if _NOT_IN_PATHS.search(plain):
        raise wrong("a character that table folders cannot have", hint='leave out \\ % = : ? * " < > | { }')
    return value


def _positive(value: timedelta | None) -> timedelta | None:
    if value is not None and value <= timedelta(0):
        raise wrong("must be longer than nothing", hint="write null for no limit")
    return value


def duration_or_none(value: Any) -> Any:
    """A positive duration, or None for no limit."""
    return None if value is None else _positive(value if isinstance(value, timedelta) else parse_duration(value))


def process_count(value: Any) -> Any:
    """How many processes of the tap there may be at once, or `auto`."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise wrong("must be a whole number from 1 on, or auto", hint="1 is one process of the tap for all streams")


def pipeline_name(name: str) -> tuple[str, str] | None:
    """What is wrong with a pipeline's name and what to do, None if nothing is."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits, dot, dash and underscore, at most 100, the first a letter or digit"
        return "not a name for a pipeline", hint
    if name.lower() in _TAKEN_NAMES:
        return "this name is taken by the bridge itself", "choose another name"
    return None


def stream_glob(value: Any) -> Any:
    """Refuse globs that can match no stream, or that are misleading."""
    if not isinstance(value, str):
        return value
    if not value.strip() or value != value.strip():
        raise wrong("not a glob of stream names", hint='such as "public-*"; "*" is every stream')
    if value.startswith("!"):
        raise wrong("a glob here cannot exclude", hint="write the exception below it: the last match wins")
    if "[" in re.sub(r"\[!?\]?[^\]]*\]", "", value):
        raise wrong("a bracket is not closed", hint="[abc] is one of these characters, [[] a bracket itself")
    return value
