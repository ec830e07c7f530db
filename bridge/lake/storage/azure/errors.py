"""Errors of Azure and of the network, with what the operator can do about them. They never show a secret.

What Azure's library raises may hold an URL with a signature. So our errors have no cause, and mask what they quote.
"""

from __future__ import annotations

import re

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob import StorageErrorCode

from bridge.errors import LakeError
from bridge.lake.storage.azure.clients import Access

FAILURES = (AzureError, ValueError)
"""The errors that Azure's library raises; `ValueError` for an invalid address."""

_RETRY = "check the network and the store, then run again; nothing that was committed is lost"
_ROLE = (
    "give these credentials the role Storage Blob Data Contributor on the container; a SAS token needs the permissions "
    "read, add, create, write, delete and list"
)
_KEY = (
    "the key or the SAS token is wrong or has expired, or this machine's clock is: check destination.azure.account_key "
    "or sas_token, AZURE_STORAGE_KEY or AZURE_STORAGE_CONNECTION_STRING, and the account's name"
)
_SIGN_IN = "sign in (such as by `az login`), give this machine an identity, or set destination.azure.account_key"
_BUSY = "the store is too busy: run again later, or with fewer pipelines at once; nothing that was committed is lost"
_HINTS = {
    "ContainerNotFound": "create the container, or correct its name or the account",
    "ContainerBeingDeleted": "somebody is deleting the container: choose another",
    "ContainerDisabled": "somebody has disabled the container: choose another",
    "InvalidResourceName": "correct the container's name: 3-63 lower-case letters, digits and hyphens",
    "AuthenticationFailed": _KEY,
    "InvalidAuthenticationInfo": "the token is not one of this account's tenant: sign in there (`az login --tenant`)",
    "NoAuthenticationInformation": _SIGN_IN,
    "PublicAccessNotPermitted": _SIGN_IN,
    "KeyBasedAuthenticationNotPermitted": "this account takes no keys: sign in, and set "
    "destination.azure.credential to default",
    "AuthorizationFailure": f"{_KEY}; or the account's firewall shuts this machine out",
    "AuthorizationPermissionMismatch": _ROLE,
    "AuthorizationResourceTypeMismatch": _ROLE,
    "AuthorizationServiceMismatch": "the SAS token is for another service: make one for blobs",
    "AuthorizationProtocolMismatch": "the SAS token is for https only",
    "AuthorizationSourceIPMismatch": "the SAS token is for another network",
    "InsufficientAccountPermissions": _ROLE,
    "AccountIsDisabled": "the storage account is disabled: see Azure's portal",
    "ConditionNotMet": "somebody else replaced it meanwhile: run again",
    "BlobNotFound": "somebody else deleted it: find out who cleans up in this container, such as a lifecycle rule",
    "BlobArchived": "the object is in the archive tier: bring it back, and let no lifecycle rule move the lake there",
    "BlobBeingRehydrated": "the object is coming back from the archive tier: run again when it is there",
    "BlobImmutableDueToPolicy": "an immutability policy or a legal hold keeps it: exclude the lake from it",
    "LeaseIdMissing": "somebody holds a lease on it: break the lease (`az storage blob lease break`)",
    "PendingCopyOperation": "somebody copies another object over it: run again later",
    "InvalidHeaderValue": "this store is older than Azure's library here; start an emulator with --skipApiVersionCheck",
    "ServerBusy": _BUSY,
    "OperationTimedOut": _BUSY,
    "InternalError": _RETRY,
}
_REASONS = {
    "AuthenticationFailed": "the store does not accept these credentials",
    "AuthorizationFailure": "access denied",
    "AuthorizationPermissionMismatch": "access denied",
}
_REFUSED = ("BlobAlreadyExists", "ConditionNotMet", "SourceConditionNotMet", "TargetConditionNotMet")
_ABSENT = ("BlobNotFound", "CannotVerifyCopySource", "ResourceNotFound")
_SIGNATURE = re.compile(r"(?i)\b(sig|accountkey|sharedaccesssignature)=[^&;\s'\")]+")


def code_of(error: BaseException) -> str:
    """The store's code; empty for an error that no store sent."""
    code = getattr(error, "error_code", None) or ""
    return str(code.value if isinstance(code, StorageErrorCode) else code)


def status_of(error: BaseException) -> int:
    """The HTTP status of the store's answer; 0 without one."""
    return int(getattr(error, "status_code", None) or 0)


def is_absent(error: BaseException) -> bool:
    """Whether the object does not exist; a container that does not is another matter."""
    return status_of(error) == 404 and code_of(error) in _ABSENT


def is_refused(error: BaseException) -> bool:
    """Whether the store refused the request's condition: the object is another one."""
    return status_of(error) in (409, 412) and code_of(error) in _REFUSED


def is_passing(error: BaseException) -> bool:
    """Whether to try again: it may help, and the outcome of this request is unknown."""
    if status := status_of(error):
        return status in (408, 429) or (status >= 500 and status not in (501, 505))
    return isinstance(error, (ServiceRequestError, ServiceResponseError, DecodeError))


def explain(error: BaseException, action: str, place: str, access: Access | None = None) -> LakeError:
    """The error for people; raise it `from None`. `place` is a URI, `access` what the request was signed with."""
    reason, hint = _answered(error) if status_of(error) else _on_the_way(error)
    if access and access.expired and status_of(error) in (401, 403):
        reason, hint = "the SAS token has expired", f"make a new one for {access.origin}; it ended at {access.expired}"
    elif access and access.origin and _KEY in hint:
        hint = hint.replace(_KEY, _wrong_secret(access))
    masked = _SIGNATURE.sub(r"\1=***", reason)
    return LakeError(f"cannot {action}: {masked}", hint=hint, at=place)


def _wrong_secret(access: Access) -> str:
    kind = "a key" if access.key else "a SAS token"
    clock = "or this machine's clock is wrong"
    return f"{access.origin} is not {kind} of the account {access.account}, or not any more; {clock}"


def _answered(error: BaseException) -> tuple[str, str]:
    code, text = code_of(error), _first_line(error)
    reason = _REASONS.get(code) or (f"{text} ({code})" if code else f"{text} ({status_of(error)})")
    if hint := _HINTS.get(code):
        return reason, hint
    if status_of(error) in (401, 403):
        return reason, _ROLE
    return reason, _RETRY if is_passing(error) else "see the store's message; Azure's manual explains its code"


def _on_the_way(error: BaseException) -> tuple[str, str]:
    """The reason and the hint for an error that no store has sent."""
    text = _first_line(error)
    if isinstance(error, ClientAuthenticationError):  # Azure's library lists all that it has tried
        signed = "shared key" in text
        return ("the key is not one", _KEY) if signed else ("there are no credentials that work", _SIGN_IN)
    if is_passing(error):
        hint = (
            "check the network, the proxy, and the account's name or the endpoint; nothing that was committed is lost"
        )
        return text, hint
    return text, _RETRY if isinstance(error, HttpResponseError) else "check the settings of the bucket"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
