"""Errors of a store and of the network, with what the operator can do about them. They never show a secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's own word
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    SSOError,
)

from bridge.errors import LakeError

FAILURES = (BotoCoreError, ClientError, ValueError)
"""The errors that boto3 raises; `ValueError` for an invalid address."""

TORN = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
"""The errors that reading an answer raises when the connection ends in the middle of it."""

_RETRY = "check the network and the store, then run again; nothing that was committed is lost"
_PASSING_CODES = {
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_ACTIONS = {
    "CompleteMultipartUpload": "s3:PutObject",
    "CopyObject": "s3:GetObject and s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObjects": "s3:DeleteObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "ListParts": "s3:ListMultipartUploadParts",
    "UploadPart": "s3:PutObject",
}
_HINTS = {
    "NoSuchBucket": "create the bucket, or correct its name, the region or the endpoint",
    "InvalidBucketName": "correct the bucket's name: 3-63 lower-case letters, digits, dots and hyphens",
    "InvalidAccessKeyId": "the store does not know this access key: check AWS_ACCESS_KEY_ID (or the profile) and the "
    "endpoint",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY (or the "
    "profile)",
    "InvalidToken": "the session token is not valid: sign in again, or unset AWS_SESSION_TOKEN if there should be none",
    "ExpiredToken": "the temporary credentials have expired: sign in again (such as `aws sso login`), then run again",
    "RequestExpired": "the temporary credentials have expired, or this machine's clock is wrong: check both",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it (such as by NTP), then run again",
    "SlowDown": "the store is too busy: run again later, or with fewer pipelines at once; nothing that was committed "
    "is lost",
    "NoSuchKey": "somebody else deleted it: find out who cleans up in this bucket (a lifecycle rule, another tool)",
    "PreconditionFailed": "somebody else replaced it meanwhile: run again",
    "InvalidStorageClass": "choose another storage class for this store",
    "NotImplemented": "this store cannot do that: see its manual, or choose another",
    "AccessControlListNotSupported": "the bucket has ACLs switched off: remove the acl from the settings",
    "InvalidObjectState": "the object is in an archive: restore it, and choose a storage class that can be read at "
    "once",
}
_HINTS["ExpiredTokenException"] = _HINTS["TokenRefreshRequired"] = _HINTS["ExpiredToken"]
_HINTS["InvalidClientTokenId"] = _HINTS["InvalidAccessKeyId"]
_HINTS["ServiceUnavailable"] = _HINTS["SlowDown"]
_WRONG_REGION = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301")
_DENIED = ("403", "AccessDenied", "AllAccessDisabled", "Forbidden", "UnauthorizedAccess")
_REASONS = {
    "403": "access denied",
    "AccessDenied": "access denied",
    "404": "not found",
    "400": "the store answers 400 without a reason",
}


def code_of(error: BaseException) -> str:
    """The store's code; empty for an error that no store sent."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: BaseException) -> int:
    """The HTTP status of the store's answer; 0 without one."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_gone(error: BaseException) -> bool:
    """Whether the object or the upload does not exist."""
    return code_of(error) in ("404", "NoSuchKey", "NoSuchUpload")


def is_refused(error: BaseException) -> bool:
    """Whether the store refused the request's condition: the object is another one."""
    return status_of(error) == 412 or code_of(error) == "PreconditionFailed"


def is_passing(error: BaseException) -> bool:
    """Whether to try again: it may help, and the outcome of this request is unknown."""
    if isinstance(error, ClientError):
        status = status_of(error)
        return (status >= 500 and status != 501) or code_of(error) in _PASSING_CODES
    return isinstance(error, (ConnectionError, HTTPClientError))


@contextmanager
def explained(action: str, place: str) -> Iterator[None]:
    """Turn what boto3 raises into a `LakeError` with the action, the place and a hint."""
    try:
        yield
    except FAILURES as error:
        raise explain(error, action, place) from error


def explain(error: BaseException, action: str, place: str) -> LakeError:
    """The error for people. `place` is a URI."""
    reason, hint = _answered(error) if isinstance(error, ClientError) else _on_the_way(error)
    return LakeError(f"cannot {action}: {reason}", hint=hint, at=place)


def _answered(error: ClientError) -> tuple[str, str]:
    code, text = code_of(error), str(error.response.get("Error", {}).get("Message", "")).rstrip(".")
    own = f"{text} ({code})" if text and text != code else code or "the store gives no reason"
    reason = _REASONS.get(code, own)
    if code.startswith("KMS") or "kms" in text.lower():
        return reason, "check kms_key_id, and the rights to kms:GenerateDataKey and kms:Decrypt on that key"
    if status_of(error) == 403 and code in _DENIED:
        return _denied(error.operation_name, code, text)
    if code in _WRONG_REGION:
        return reason, _right_region(error)
    if code == "404":
        return reason, _HINTS["NoSuchBucket"]
    if code == "400":
        return reason, "mostly expired credentials or a wrong region: check both"
    return reason, _HINTS.get(code, _RETRY if is_passing(error) else "see the store's message; its manual explains it")


def _denied(operation: str, code: str, text: str) -> tuple[str, str]:
    if operation == "AssumeRole":
        hint = "allow sts:AssumeRole in the role's trust policy, and to these credentials"
        return f"the role cannot be assumed: {text}", hint
    action = _ACTIONS.get(operation, f"s3:{operation}")
    hint = f"allow {action} on it to these credentials"
    if operation in ("HeadObject", "GetObject"):
        hint += ", and s3:ListBucket on the bucket (without it a missing object is an access denied, too)"
    if code == "403":  # a HEAD has no body that could say more
        hint += "; a wrong key, expired credentials or a wrong region look the same: `singer-bridge doctor` tells which"
    return f"access denied to {action}", hint


def _right_region(error: ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    answer = error.response.get("Error", {})
    if region := answer.get("Region") or headers.get("x-amz-bucket-region"):
        return f"the bucket is in another region: set region to {region}"
    if endpoint := answer.get("Endpoint"):
        return f"the bucket is elsewhere: its address is {endpoint}; set its region, or this endpoint"
    return "the bucket is in another region: set region (AWS_REGION)"


def _on_the_way(error: BaseException) -> tuple[str, str]:
    """The reason and the hint for an error that no store has sent."""
    for kinds, reason, hint in _BEFORE_THE_STORE:
        if isinstance(error, kinds):
            return reason.format(error=" ".join(str(error).split())), hint
    return str(error), _RETRY if is_passing(error) or isinstance(error, TORN) else "check the settings of the bucket"


_BEFORE_THE_STORE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        NoCredentialsError,
        "there are no credentials",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or give this machine a role",
    ),
    (
        PartialCredentialsError,
        "half of the credentials are missing: {error}",
        "set both the access key and the secret key",
    ),
    (ProfileNotFound, "{error}", "correct the profile, or make it by `aws configure --profile <name>`"),
    ((CredentialRetrievalError, SSOError), "{error}", "sign in again (such as `aws sso login`), then run again"),
    (NoRegionError, "{error}", "set region, or AWS_REGION"),
    (ParamValidationError, "{error}", "correct the bucket's name and the settings of its store"),
    (
        SSLError,
        "{error}",
        "check the endpoint (http or https?) and its certificate; AWS_CA_BUNDLE names your own authority",
    ),
    (
        (EndpointConnectionError, ConnectTimeoutError),
        "{error}",
        "check the network, the proxy, and the endpoint's address; nothing that was committed is lost",
    ),
)
