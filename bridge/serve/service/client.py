"""Asks a service by its HTTP API: start a run, wait for its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from bridge.errors import BridgeError, SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.settings.service import Service

_PATIENCE = 30.0
"""Seconds for one answer."""
_EVERY = 0.5
"""Seconds between two questions whether a run has ended."""
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (where a service listens to all, this machine reaches it)


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """A service at a URL, without a `/` at its end."""

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: Service, url: str | None = None) -> ServiceClient:
        """The service of a settings file. Raises `SettingsError` if only the service knows its port."""
        if url is None and not settings.port:
            raise SettingsError("service.port is 0: any port", hint="give --url; the service prints it")
        host = _ANY.get(settings.host, settings.host)
        own = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
        return cls((url or own).rstrip("/"), settings.token)

    def start(self, pipeline: str, *, full: bool = False, resume: bool = False, streams: Sequence[str] = ()) -> str:
        """Request a run and return its id. Raises `BridgeError` with what the service says against it."""
        asked = {"full": full, "resume": resume, "streams": list(streams)}
        return str(self._ask(f"/api/pipelines/{quote(pipeline, safe='')}/runs", dumps(asked))["run_id"])

    def ended(self, pipeline: str, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run, with all attempts of `retry`, and return the record of the last one.

        Of a run that never started it is `not run` with the `reason`.
        """
        path = f"/api/pipelines/{quote(pipeline, safe='')}/runs"
        while True:
            facts: dict[str, Any] = self._ask(f"{path}/{run_id}")
            if facts["live"] is not None or facts["status"] == "running":
                time.sleep(_EVERY)
            elif following := self._next_attempt(path, facts):
                run_id = following
            else:
                return facts

    def _next_attempt(self, path: str, record: dict[str, Any]) -> str | None:
        """The attempt after one that failed, or died: the first run after it, if that is an attempt at the same."""
        if record["status"] not in ("failed", "died"):
            return None
        runs = [run for run in self._ask(path) if run["status"] != "held"]
        runs.sort(key=lambda run: (run["started"], _attempt(run)))
        ids = [run["run_id"] for run in runs]
        after = runs[ids.index(record["run_id"]) + 1 :] if record["run_id"] in ids else []
        return str(after[0]["run_id"]) if after and _attempt(after[0]) == _attempt(record) + 1 else None

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        headers = {"content-type": "application/json", "x-singer-bridge": "1"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        request = Request(f"{self.url}{path}", body, headers)  # noqa: S310 (the user's own URL)
        try:
            with urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310
                return loads(answer.read())
        except HTTPError as error:
            raise _refused(error) from None
        except (URLError, HTTPException, OSError, NotJson, ValueError) as error:
            reason = getattr(error, "reason", error)
            hint = "is `singer-bridge serve` running? --url says where"
            raise BridgeError(f"the service does not answer: {reason}", hint=hint, url=self.url) from error


def _attempt(record: dict[str, Any]) -> int:
    return int(record.get("attempt", 1))


def _refused(error: HTTPError) -> BridgeError:
    """The error with which the service refused a request."""
    try:
        facts = loads(error.read())["error"]
        message, hint = str(facts["message"]), str(facts["hint"])
    except (NotJson, LookupError, TypeError, OSError):
        message, hint = f"the service refuses: {error.code} {error.reason}", "is that the URL of a service?"
    return SettingsError(message, hint=hint) if error.code < 500 else BridgeError(message, hint=hint)
