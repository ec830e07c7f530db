"""Who may use the page: a token, or anybody on this machine; and what a browser must not be made to do.

Without a token only a loopback address is served, and only under a name of this machine: a foreign name that resolves
to it (DNS rebinding) is refused. A browser has a session, a signed cookie that scripts cannot read and other sites do
not send. Everything that changes something is a POST and needs the session's CSRF token; a program sends the token of
the service, or a header that no form of another site can send.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from bridge.errors import SettingsError
from bridge.lake.storage.local.folders import draft_of, explained

OWN_HEADER = "x-singer-bridge"
"""Without a token, a program that changes something sends this header, whatever its value."""
_DAYS = 7
_SHORTEST = 16
"""Characters of a token: a shorter one can be guessed."""
_LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class LoginSession:
    """A browser. `is_in`: it may see pages. `fresh`: it has no cookie yet, so one is sent."""

    id: str
    is_in: bool
    fresh: bool = False


class Logouts:
    """Ids of sessions that were ended before their time: a copy of their cookie is worth nothing, also after a restart.

    They are in a file as long as a cookie could be valid, and are no secret.
    """

    def __init__(self, file: Path | None = None) -> None:
        """`file`: None forgets them with the process."""
        self._file = file
        self._lock = threading.Lock()
        self._until = dict[str, float]()
        if file:
            with suppress(OSError, ValueError):  # there is none yet
                lines = (line.split() for line in file.read_text().splitlines())
                self._until = {session: float(until) for session, until in lines}

    def __contains__(self, session: str) -> bool:
        return session in self._until

    def end(self, session: str, until: float) -> None:
        """End a session whose cookie is valid until that time. Raises `LakeError` if a restart would forget it."""
        with self._lock:
            now = time.time()
            self._until = {one: end for one, end in self._until.items() if end > now} | {session: until}
            if self._file:
                with explained("note the logout in", self._file), draft_of(self._file) as draft:
                    draft.parent.mkdir(parents=True, exist_ok=True)
                    draft.write_text("".join(f"{one} {end:.0f}\n" for one, end in self._until.items()))


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The rules of one service. Every comparison of a secret takes the same time, whatever is sent."""

    token: str | None = field(default=None, repr=False)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs sessions. It follows from the token, so sessions outlive a restart; without a token it is a new one."""
    logouts: Logouts = field(default_factory=Logouts, repr=False)

    @classmethod
    def of(cls, host: str, token: str | None, logouts: Path | None = None) -> LoginRules:
        """The rules for an address. Raises `SettingsError` if everybody on the network could use the page.

        `logouts`: the file of the sessions that were ended.
        """
        if not token:
            if not is_loopback(host):
                hint = 'set service.token, such as "${SINGER_BRIDGE_TOKEN}", or service.host to 127.0.0.1'
                raise SettingsError(
                    "service.host is an address of the network: a token is needed", hint=hint, host=host
                )
            return cls()
        if len(token) < _SHORTEST:
            hint = "python3 -c 'import secrets; print(secrets.token_urlsafe())' makes one"
            raise SettingsError(f"service.token is shorter than {_SHORTEST} characters", hint=hint)
        key = hashlib.sha256(b"singer-bridge session\0" + token.encode()).digest()
        return cls(token, key, Logouts(logouts))

    def knows_host(self, headers: Headers) -> bool:
        """Whether the Host is a name of this machine; with a token any name is right, such as that of a proxy."""
        return self.token is not None or _LOCAL_HOST.fullmatch(headers.get("host", "")) is not None

    def is_token(self, text: str) -> bool:
        """Whether a text is the token."""
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def has_bearer(self, headers: Headers) -> bool:
        """Whether a program sent the token."""
        kind, _, text = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(text.strip())

    def session(self, cookie: str | None) -> LoginSession:
        """The session of a cookie; a new one if it is missing, forged or too old. Without a token, each one is in."""
        parts = (cookie or "").split(".")
        if len(parts) == 4 and hmac.compare_digest(parts[3].encode(), self._mac("session", *parts[:3]).encode()):
            name, level, until = parts[:3]
            if until.isdigit() and int(until) > time.time() and name not in self.logouts:
                return LoginSession(name, level == "in" or self.token is None)
        return LoginSession(secrets.token_hex(16), self.token is None, fresh=True)

    def entered(self) -> LoginSession:
        """A new session for somebody who knows the token: one that was known before is worth nothing now."""
        return LoginSession(secrets.token_hex(16), is_in=True, fresh=True)

    def leave(self, session: LoginSession) -> None:
        """End a session: whoever copied its cookie is out, too. Raises `LakeError` if a restart would forget it."""
        if self.token is not None and session.is_in and not session.fresh:
            self.logouts.end(session.id, time.time() + _DAYS * 86400)

    def cookie(self, session: LoginSession, name: str, *, secure: bool) -> str:
        """The `Set-Cookie` of a session."""
        text = (session.id, "in" if session.is_in else "out", str(int(time.time()) + _DAYS * 86400))
        flags = f"Path=/; Max-Age={_DAYS * 86400}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
        return f"{name}={'.'.join(text)}.{self._mac('session', *text)}; {flags}"

    def csrf(self, session: LoginSession) -> str:
        """The token that each form of a session holds."""
        return self._mac("csrf", session.id)

    def is_csrf(self, session: LoginSession, text: str) -> bool:
        """Whether a form is one of this session's."""
        return hmac.compare_digest(self.csrf(session).encode(), text.encode())

    def _mac(self, *parts: str) -> str:
        return hmac.new(self.key, "\0".join(parts).encode(), hashlib.sha256).hexdigest()


def cookie_name(scope: Scope) -> str:
    """The session's cookie. Browsers send cookies to all ports of a machine: each service has a name of its own."""
    return f"singer_bridge_{(scope.get('server') or ('', 0))[1]}"


def may_look(headers: Headers) -> bool:
    """Whether a GET is of our own pages, of a program, or a link of another site that somebody followed.

    Another site's page that loads one of ours as an image, a script or a frame has no business here.
    """
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return followed or is_own_origin(headers)


def is_own_origin(headers: Headers) -> bool:
    """Whether a request comes from our own pages, as far as a browser says; a program says nothing."""
    if site := headers.get("sec-fetch-site"):
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")
