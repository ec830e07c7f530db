"""Secrets: collected from the settings, and replaced by `***` in logs, errors and records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from bridge.errors import BridgeError

_ASPECT = (
    r"(?:[-_. ]|(?-i:(?<=[a-z0-9])(?=[A-Z])))"
    r"(?:path|file|filename|folder|dir|directory|ur[il]|endpoint|host|port|type|kind|method|mode|name|field|param|parameter"
    r"|column|location|selector|format|expiry|expires|expiration|ttl|timeout|seconds|minutes|hours|lifetime|limit|size|count"
    r"|enabled?|disabled?|required|scopes?|audience|prefix|suffix|pattern|regex|template|policy|version|region|strategy|flow"
    r"|provider|interval|attempts|retries)$"
)
"""Endings of names that mention a secret but do not hold one: `token_url`, `next_page_token_path`."""
SECRET_KEY = re.compile(
    r"(?:sqlalchemy|database|db|conn|connection)[-_]?ur[il]$"
    rf"|^(?!.*{_ASPECT}).*"
    r"(?:password|passwd|passphrase|pwd|(?<!by)(?<!com)pass$|secret|token|credential|^private$"
    r"|(?:api|access|account|private)[-_.]?key"
    r"|(?:^|[-_. ]|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?:sas|sig|signature)(?:$|[-_. ]|(?-i:(?<=[a-z])(?=[A-Z])))"
    r"|auth(?!or(?!iz))|dsn|(?:^|[-_. ])conn(?:ection)?(?:[-_. ]?(?:str|string|info))?$)",
    re.IGNORECASE,
)
"""Names of settings that hold a secret."""
# What Spark itself redacts (spark.redaction.regex), and the keys of clouds. Our own, wider pattern would hide time-outs
# and the names of classes that provide credentials or keys.
SPARK_SECRET = re.compile(
    r"secret|password|passphrase|token|(?:access|account|private)[._-]?key(?!provider)|[.]sas(?:[.]|$)"
    r"|credentials?(?![a-z]*[._-]?provider)",
    re.IGNORECASE,
)

# Drivers differ in which `@` ends a password that contains one: both readings are secrets.
_URLS = tuple(re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:" + part + "@") for part in (r"([^\s@]+)", r"([^\s/]+)"))
_ASSIGNED = re.compile(
    r"(?:password|passwd|pwd|\bpass|secret|token|(?:api|access|account)[-_]?key|signature|\bsig)=([^&;\s]+)",
    re.IGNORECASE,
)

_SHORTEST = 4
_LONGEST_PUBLIC_LINE = 15
# Replacing these would break every JSON record that passes by, and they hide nothing.
_WORDS = frozenset({"true", "false", "null", "none"})


def learn(value: Any, *, under_secret_key: bool = False) -> Iterator[str]:
    """Yield the secrets in a tap's settings: values of keys that name a secret, and passwords in URLs and DSNs."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from learn(child, under_secret_key=under_secret_key or bool(SECRET_KEY.search(str(key))))
    elif isinstance(value, list | tuple):
        for child in value:
            yield from learn(child, under_secret_key=under_secret_key)
    elif isinstance(value, str):
        yield from _learn_text(value, under_secret_key)
    elif under_secret_key and isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)  # a password of digits, written without quotes


def _learn_text(text: str, under_secret_key: bool) -> Iterator[str]:
    if under_secret_key:
        yield text
        # A private key appears in logs line by line, never as a whole.
        lines = text.splitlines() if "\n" in text else []
        yield from (line for line in lines if len(line) > _LONGEST_PUBLIC_LINE and not line.startswith("-----"))
    for password in (match for url in _URLS for match in url.findall(text)):
        yield from (password, unquote(password))
    for password in _ASSIGNED.findall(text):
        yield from (password, unquote_plus(password))
    if text.lstrip().startswith("{"):  # a service account as JSON text in one setting
        yield from learn(_json_or_nothing(text))


def _json_or_nothing(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def learn_arguments(arguments: list[str]) -> Iterator[str]:
    """Yield the secrets on a command line: `--password=x`, `--password x`, URLs."""
    yield from learn(arguments)
    for flag, value in pairwise(arguments):
        if flag.startswith("-") and "=" not in flag and SECRET_KEY.search(flag):
            yield value


def worth_hiding(texts: Iterable[str]) -> frozenset[str]:
    """Keep texts of 4 characters and more that are not JSON words. Shorter ones occur everywhere."""
    stripped = (text.strip() for text in texts)
    return frozenset(text for text in stripped if len(text) >= _SHORTEST and text.lower() not in _WORDS)


class Redactor:
    """Replaces each secret by `***`, also in the forms in which JSON or a URL escapes it.

    Longest first, so that no tail of a longer secret stays. A secret cut in two is not seen: give it whole lines, or
    what `settled` says.
    """

    def __init__(self, forms: Iterable[bytes]) -> None:
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._longest = len(ordered[0]) if ordered else 0
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, data: bytes) -> bytes:
        return self._pattern.sub(b"***", data) if self._pattern else data

    def text(self, text: str) -> str:
        """Mask a text. Half of a character, as in an odd file name, is written as JSON does."""
        return self(text.encode(errors="backslashreplace")).decode(errors="replace")

    def mask(self, error: BridgeError) -> None:
        """Mask what an error says."""
        error.message, error.hint = self.text(error.message), self.text(error.hint)

    def settled(self, data: bytes) -> int:
        """How many bytes of `data` no secret can reach beyond, whatever follows."""
        cut = len(data) - max(0, self._longest - 1)
        for match in self._pattern.finditer(data) if self._pattern else ():
            if match.start() < cut < match.end():
                return match.end()
        return max(0, cut)


def redactor(secrets: Iterable[str]) -> Redactor:
    """The function that replaces these secrets in bytes."""
    return Redactor({form for secret in secrets if secret for form in _forms(secret)})


def redactor_of(value: Any) -> Redactor:
    """The function that replaces the secrets in this value in bytes."""
    return redactor(worth_hiding(learn(value)))


def _forms(secret: str) -> Iterator[bytes]:
    texts = (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
    )
    yield from (_bytes(text) for text in texts)


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # bytes of the environment that are no UTF-8
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")  # a lone surrogate from JSON
