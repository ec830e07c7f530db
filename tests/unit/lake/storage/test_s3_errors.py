"""What the store refuses is told so that the operator knows what to change; no message holds a secret."""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from bridge.errors import LakeError, SettingsError
from bridge.lake.storage import Change, Storage, open_storage
from bridge.lake.storage.s3.errors import explain, is_passing
from bridge.settings.values.stores import S3Options
from tests.support.s3server import S3Server


@pytest.fixture
def storage(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Storage:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("bridge.lake.storage.conditional._PATIENCE", 0.3)
    storage: Storage = s3.storage(f"s3://{uuid.uuid4().hex}/team")
    return storage


def _refused(act: Any) -> LakeError:
    with pytest.raises(LakeError) as caught:
        act()
    error = caught.value
    assert error.hint
    for secret in ("very-secret-key", os.environ.get("AWS_SECRET_ACCESS_KEY") or "very-secret-key"):
        assert secret not in error.message + error.hint
    return error


REFUSALS = {
    ("InvalidAccessKeyId", 403): "check AWS_ACCESS_KEY_ID",
    ("SignatureDoesNotMatch", 403): "check AWS_SECRET_ACCESS_KEY",
    ("ExpiredToken", 400): "have expired: sign in again",
    ("RequestExpired", 403): "expired",
    ("InvalidToken", 400): "AWS_SESSION_TOKEN",
    ("RequestTimeTooSkewed", 403): "clock is wrong",
    ("SlowDown", 503): "too busy",
    ("InternalError", 500): "check the network and the store",
    ("KMS.DisabledException", 400): "check kms_key_id",
    ("InvalidArgument", 400): "see the store's message",
    ("NotImplemented", 501): "choose another",
    ("AccessControlListNotSupported", 400): "remove the acl",
    ("InvalidStorageClass", 400): "another storage class",
}


@pytest.mark.parametrize(("refusal", "hint"), REFUSALS.items(), ids=lambda value: value[0])
def test_each_refusal_has_its_hint(s3: S3Server, storage: Storage, refusal: tuple[str, int], hint: str) -> None:
    """The message has the store's own word, and the object; the hint says what to change, for whatever was tried."""
    code, status = refusal
    s3.fault("error", "team", status=status, code=code, times=None)
    for act in (lambda: storage.write("k", b"x"), lambda: storage.read("k"), lambda: list(storage.list("team"))):
        error = _refused(act)
        assert code in error.message
        assert f"at={storage.uri}/" in error.message
        assert hint in error.hint


ACTIONS = {
    "^PUT": (lambda s: s.write("k", b"x"), "s3:PutObject"),
    "^GET": (lambda s: s.read("k"), "s3:GetObject"),
    "^HEAD": (lambda s: s.size("k"), "s3:GetObject"),
    "list-type": (lambda s: list(s.list("a")), "s3:ListBucket"),
    "^DELETE": (lambda s: s.delete("k"), "s3:DeleteObject"),
    "^PUT .*cond": (lambda s: s.put_if_absent("cond", b"x"), "s3:PutObject"),
}


@pytest.mark.parametrize("match", ACTIONS)
def test_access_denied_names_the_right(s3: S3Server, storage: Storage, match: str) -> None:
    """An access that is denied names the right that is missing, also where the answer has no body."""
    act, right = ACTIONS[match]
    s3.fault("error", match, status=403, code="AccessDenied", times=None)
    error = _refused(lambda: act(storage))
    assert f"access denied to {right}" in error.message
    assert f"allow {right}" in error.hint
    if match in ("^GET", "^HEAD"):
        assert "s3:ListBucket" in error.hint


def test_missing_bucket(s3: S3Server, storage: Storage) -> None:
    """A bucket that does not exist is named, for whatever is tried first."""
    missing = open_storage(f"s3://none-{uuid.uuid4().hex}/team")
    for act in (
        missing.prepare,
        lambda: missing.read("k"),
        lambda: list(missing.list("")),
        lambda: missing.write("k", b""),
    ):
        error = _refused(act)
        assert "NoSuchBucket" in error.message
        assert missing.uri in error.message
        assert "create the bucket" in error.hint


def test_wrong_region(s3: S3Server, storage: Storage) -> None:
    """A bucket of another region names that region."""
    said = {"Region": "eu-central-1", "Message": "the region 'us-east-1' is wrong; expecting 'eu-central-1'"}
    s3.fault("error", "^PUT", status=400, code="AuthorizationHeaderMalformed", extra=said, times=None)
    error = _refused(lambda: storage.write("k", b""))
    assert "set region to eu-central-1" in error.hint


def test_no_network(storage: Storage) -> None:
    """An address where nobody listens is named, for reads and for conditional puts."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        nowhere = open_storage("s3://lake", S3Options(endpoint_url=endpoint))
        error = _refused(lambda: nowhere.read("k"))
        assert endpoint in error.message
        assert "endpoint's address" in error.hint
        assert endpoint in _refused(lambda: nowhere.put_if_absent("k", b"")).message


def test_tls_to_a_plain_server(s3: S3Server, storage: Storage) -> None:
    """An endpoint with https in front of a server without is told as that."""
    tls = open_storage("s3://lake", S3Options(endpoint_url=s3.endpoint.replace("http:", "https:")))
    assert "http or https?" in _refused(lambda: tls.read("k")).hint


def test_no_credentials(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials the variables to set are named; with half of them the other half is."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = _refused(lambda: storage.read("k"))
    assert "no credentials" in error.message
    assert "AWS_ACCESS_KEY_ID" in error.hint
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "half")
    assert "both" in _refused(lambda: storage.read("k")).hint
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    assert storage.read("k") is None


def test_unknown_profile(s3: S3Server, storage: Storage) -> None:
    """A profile that does not exist is named."""
    error = _refused(lambda: s3.storage("s3://lake", profile="nobody").read("k"))
    assert "nobody" in error.message
    assert "profile" in error.hint


@pytest.mark.parametrize("endpoint", ["not an address", "localhost:9000"])
def test_an_endpoint_that_is_none(storage: Storage, endpoint: str) -> None:
    """What is no address is told as such when the bucket is first used."""
    _refused(lambda: open_storage("s3://lake", S3Options(endpoint_url=endpoint)).read("k"))


def test_bad_bucket_names(storage: Storage) -> None:
    """A bucket without a name is a wrong setting; one that no store takes is told before anything is sent."""
    with pytest.raises(SettingsError, match="no name") as caught:
        open_storage("s3://")
    assert "s3://bucket/folder" in caught.value.hint
    assert "bucket's name" in _refused(lambda: open_storage("s3://Not_A bucket").read("k")).hint


def test_time_outs_are_passing() -> None:
    """A time-out says nothing about what was done: it is tried again, then told with the endpoint."""
    for error in (ReadTimeoutError(endpoint_url="http://store"), ConnectTimeoutError(endpoint_url="http://store")):
        assert is_passing(error)
        told = explain(error, "write", "s3://lake/k")
        assert "http://store" in told.message
        assert "network" in told.hint


def test_role_that_may_not_be_taken_on(s3: S3Server, storage: Storage, tmp_path: Path) -> None:
    """A role is asked for before the first request; a refusal names the role's policy, not the bucket's."""
    role = "arn:aws:iam::123456789012:role/loader"
    as_role = s3.storage(storage.uri, role_arn=role)
    as_role.write("k", b"x")
    assert as_role.read("k") == b"x"
    body = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not for you</Message></Error></ErrorResponse>"
    s3.fault("error", "^POST /$", status=403, code="AccessDenied", body=body, times=None)
    error = _refused(lambda: s3.storage(storage.uri, role_arn=f"{role}2").read("k"))
    assert "sts:AssumeRole" in error.hint


def test_how_objects_are_kept(s3: S3Server, storage: Storage) -> None:
    """Encryption and ACL go with every object, the storage class with a table's only; copies and uploads too."""
    from tests.contract.lakes import pend

    options = {"kms_key_id": "alias/lake", "acl": "bucket-owner-full-control", "storage_class": "STANDARD_IA"}
    kept = s3.storage(storage.uri, **options)
    kept.write(".bridge/p/x", b"x")
    kept.publish([Change("t", pend(kept, "n1"))])
    bucket, client = storage.uri.split("/")[2], s3.client()
    facts = {key: client.head_object(Bucket=bucket, Key=f"team/{key}") for key in (".bridge/p/x", "t/n1")}
    assert {key: fact.get("StorageClass") for key, fact in facts.items()} == {
        ".bridge/p/x": None,
        "t/n1": "STANDARD_IA",
    }
    assert {fact["ServerSideEncryption"] for fact in facts.values()} == {"aws:kms"}
    assert {fact["SSEKMSKeyId"] for fact in facts.values()} == {"alias/lake"}
