"""Errors of Google Cloud Storage and of the network, with what the operator can do about them. They show no secret."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import requests
import urllib3
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, RetryError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.resumable_media import DataCorruption, InvalidResponse

from bridge.errors import LakeError

FAILURES = (
    GoogleAPIError,
    GoogleAuthError,
    InvalidResponse,
    DataCorruption,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)
"""The errors that Google's library raises, and those below it; `ValueError` for an invalid address."""

_ON_THE_WAY = (
    DataCorruption,
    TransportError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.PoolError,
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
)
_RETRY = "check the network and the store, then run again; nothing that was committed is lost"
_SIGN_IN = "sign in again (`gcloud auth application-default login`), or check the file of credentials"
_RIGHTS = {
    "read": "storage.objects.get",
    "look for": "storage.objects.get",
    "list": "storage.objects.list",
    "write": "storage.objects.create and storage.objects.delete",
    "copy": "storage.objects.get, create and delete",
    "delete": "storage.objects.delete",
    "read the settings of": "storage.buckets.get",
}
_HINTS = {
    401: _SIGN_IN,
    404: "create the bucket (`gcloud storage buckets create`), or correct its name, or the endpoint",
    412: "somebody else replaced it meanwhile: run again",
    429: "the store is too busy, or an object is replaced more than once a second: run again later, or commit less "
    "often; nothing that was committed is lost",
}
_REASON_HINTS = {
    "retentionPolicyNotMet": "remove the bucket's retention policy, or choose another bucket: objects must be replaced",
    "objectUnderActiveHold": "switch off the bucket's default hold, or choose another bucket: objects must be replaced",
    "userProjectMissing": "the requester pays for this bucket: set destination.gcs.project to the project that pays",
    "billingNotEnabled": "enable billing for the project of the bucket",
    "accountDisabled": "enable billing for the project of the bucket",
}
_SESSION = re.compile(r"(upload_?id=)[^&\s'\")]+", re.IGNORECASE)
"""Whoever knows the name of an upload may write to it."""


def status_of(error: BaseException | None) -> int:
    """The HTTP status of the store's answer; 0 without one."""
    if isinstance(error, RetryError):
        return status_of(error.cause)
    if isinstance(error, GoogleAPICallError):
        return int(error.code or 0)
    return int(error.response.status_code) if isinstance(error, InvalidResponse) else 0


def is_gone(error: BaseException) -> bool:
    """Whether the object does not exist."""
    return status_of(error) == HTTPStatus.NOT_FOUND


def is_refused(error: BaseException) -> bool:
    """Whether the store refused the request's condition: the object is another one."""
    return status_of(error) == HTTPStatus.PRECONDITION_FAILED


def is_passing(error: BaseException) -> bool:
    """Whether to try again: it may help, and the outcome of this request is unknown."""
    if isinstance(error, RetryError):
        return True
    if status := status_of(error):
        return status in (408, 429) or (status >= 500 and status != 501)
    return isinstance(error, _ON_THE_WAY) and "CERTIFICATE_VERIFY_FAILED" not in str(error)


@contextmanager
def explained(action: str, place: str) -> Iterator[None]:
    """Turn what Google's library raises into a `LakeError` with the action, the place and a hint."""
    try:
        yield
    except FAILURES as error:
        raise explain(error, action, place) from error


def explain(error: BaseException, action: str, place: str) -> LakeError:
    """The error for people. `place` is a URI."""
    if isinstance(error, RetryError) and error.cause:
        error = error.cause
    reason, hint = _answered(error, action) if status_of(error) else _before_the_store(error)
    return LakeError(f"cannot {action}: {reason}", hint=hint, at=place)


def _answered(error: Any, action: str) -> tuple[str, str]:
    status, answer = status_of(error), _answer(error)
    code = str((answer.get("errors") or [{}])[0].get("reason", ""))
    text = _without_secrets(str(answer.get("message") or "")).rstrip(".")
    reason = f"{text} ({status})" if text else f"the store answers {status} {_phrase(status)}"
    if hint := _REASON_HINTS.get(code):
        return reason, hint
    if status in (400, 403) and "kms" in text.lower():
        return (
            reason,
            "let Google's service agent of the project use the key: roles/cloudkms.cryptoKeyEncrypterDecrypter",
        )
    if status == 403:
        lacking = _RIGHTS.get(action, "access")
        return reason, f"allow {lacking} to these credentials: roles/storage.objectUser on the bucket has it"
    if hint := _HINTS.get(status):
        return reason, hint
    return reason, _RETRY if is_passing(error) else "see the store's message; Google's manual explains it"


def _answer(error: Any) -> dict[str, Any]:
    """The error in the answer's body: `message` and `errors`; empty if it is not in Google's form."""
    try:
        body = json.loads(error.response.text)["error"]
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError, requests.RequestException):
        return {}
    return body if isinstance(body, dict) else {}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _before_the_store(error: BaseException) -> tuple[str, str]:
    """The reason and the hint for an error that no store has sent."""
    text = _without_secrets(" ".join(str(error).split()))
    if isinstance(error, DefaultCredentialsError):
        hint = (
            "set GOOGLE_APPLICATION_CREDENTIALS or destination.gcs.credentials_file to a file of credentials, or sign "
            "in (`gcloud auth application-default login`), or give this machine a service account"
        )
        return f"there are no credentials: {text.partition('. ')[0]}", hint
    if isinstance(error, RefreshError):
        return "the credentials are not valid any more", _SIGN_IN
    if isinstance(error, requests.exceptions.SSLError):
        return text, "check the endpoint (http or https?) and its certificate; REQUESTS_CA_BUNDLE names your authority"
    if is_passing(error):
        return text, "check the network, the proxy, and the endpoint's address; nothing that was committed is lost"
    return text, "check the settings of the bucket, and the file of credentials"


def _without_secrets(text: str) -> str:
    return _SESSION.sub(r"\1...", text)
