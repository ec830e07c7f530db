"""`doctor` on an S3 bucket: each right by its name, the bucket's own rules, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.findings import exit_code, run_checks
from bridge.operate.doctor.lake import lake_checks
from bridge.settings.load import load
from tests.support.s3server import S3Server
from tests.support.shell import Typed

YAML = """\
pipelines:
  flights:
    source: {tap: tap-smoke, config: {streams: [{name: users, records: 3}]}}
    destination: {bucket: "s3://BUCKET/team"}
"""


class Doctor:
    """A project on a bucket of its own, and what `doctor` finds."""

    def __init__(self, s3: S3Server, folder: Path) -> None:
        self.s3, self._file = s3, folder / "bridge.yaml"
        self.bucket = s3.bucket(f"doctor-{folder.name.replace('_', '-').lower()}"[:60].strip("-"))
        self._file.write_text(YAML.replace("BUCKET", self.bucket))

    def __call__(self) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit code and the findings about the bucket."""
        found = list(run_checks(lake_checks(load(self._file, {}).pipeline(None))))
        assert all(finding.fix for finding in found if finding.status != "ok")
        return exit_code(found), [
            {"check": one.check, "status": one.status, "found": one.text, "fix": one.fix} for one in found
        ]

    def refuse(self, match: str, code: str = "AccessDenied", status: int = 403) -> None:
        self.s3.fault("error", match, status=status, code=code, times=None)

    def rule(self, **keys: Any) -> None:
        rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": ""}} | keys
        self.s3.client().put_bucket_lifecycle_configuration(
            Bucket=self.bucket, LifecycleConfiguration={"Rules": [rule]}
        )

    def left(self) -> list[str]:
        """What is in the bucket, unfinished uploads too."""
        client = self.s3.client()
        objects = client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        uploads = client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [one["Key"] for one in (*objects, *uploads)]


@pytest.fixture
def doctor(s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    return Doctor(s3, folder)


def of(found: list[dict[str, Any]], check: str) -> list[str]:
    """What one check says, with its status before it if that is not fine."""
    texts = [(one["status"], one["found"]) for one in found if one["check"] == check]
    return [text if status == "ok" else f"{status}: {text}" for status, text in texts]


def wrong(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["check"]: one["status"] for one in found if one["status"] != "ok"}


def test_a_bucket_in_order(doctor: Doctor) -> None:
    """Everything that a run does is tried, nothing is wrong, and nothing is left."""
    code, found = doctor()
    assert (code, wrong(found)) == (0, {})
    names = {one["check"] for one in found}
    assert {"bucket", "rights", "swap", "uploads", "copies", "put-if-absent", "publish", "commit log", "lease"} <= names
    assert {"lifecycle", "versioning", "object lock", "clock"} <= names
    assert "Advice: AbortIncompleteMultipartUpload after 7 days" in of(found, "lifecycle")[0]
    assert doctor.left() == []


def test_people_read_it(doctor: Doctor, typed: Typed) -> None:
    """The command shows these checks among those of the machine, the spool and the tap."""
    done = typed("doctor --no-spark")
    assert done.code == 0
    assert f"✓ bucket          s3://{doctor.bucket}/team exists" in done.out
    assert done.out.splitlines()[-1] == "✓ all is fine"


@pytest.mark.parametrize(
    ("match", "check", "action"),
    [
        (r"^PUT /[^/]+/team/\.doctor-[^?]*$", "rights", "s3:PutObject"),
        (r"^GET /[^/]+/team/\.doctor-[^?]*$", "rights", "s3:GetObject"),
        (r"^DELETE /[^/]+/team/\.doctor-[^?]*$", "rights", "s3:DeleteObject"),
        (r"^GET .*uploadId=", "uploads", "s3:ListMultipartUploadParts"),
        (r"^DELETE .*uploadId=", "uploads", "s3:AbortMultipartUpload"),
        (r"^GET /[^/]+/?\?(?!.*max-keys=1&).*list-type=2", "rights", "s3:ListBucket"),
    ],
)
def test_a_missing_right_is_named(doctor: Doctor, match: str, check: str, action: str) -> None:
    """A missing right is named by the action to allow, and all other checks are still made."""
    doctor.refuse(match)
    code, found = doctor()
    assert code == 3
    assert any(action in text for text in of(found, check)), found
    assert "the store's clock agrees with ours" in of(found, "clock")
    hints = [one["fix"] for one in found if one["check"] == check and one["status"] == "error"]
    assert any(f"allow {action}" in hint for hint in hints)


@pytest.mark.parametrize(
    ("match", "code", "status", "said", "hint"),
    [
        ("", "InvalidAccessKeyId", 403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("", "SignatureDoesNotMatch", 403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        ("", "ExpiredToken", 400, "ExpiredToken", "sign in again"),
        ("", "RequestTimeTooSkewed", 403, "RequestTimeTooSkewed", "clock is wrong"),
        ("", "NoSuchBucket", 404, "NoSuchBucket", "create the bucket"),
        ("list-type=2", "AccessDenied", 403, "access denied to s3:ListBucket", "allow s3:ListBucket"),
    ],
)
def test_a_bucket_that_cannot_be_reached(
    doctor: Doctor, match: str, code: str, status: int, said: str, hint: str
) -> None:
    """The failure is reported once, with its reason; checks that could only fail the same way are not made."""
    doctor.refuse(match, code, status)
    exit_code, found = doctor()
    assert (exit_code, wrong(found)) == (3, {"bucket": "error"})
    (text,) = of(found, "bucket")
    assert said in text
    assert hint in next(one["fix"] for one in found if one["check"] == "bucket")
    assert of(found, "rights") == []


def test_a_store_without_conditional_puts(doctor: Doctor) -> None:
    """Where the second of two writers wins, too, doctor says that it is no place for a lake."""
    doctor.s3.fault("ignore_conditions", "^PUT ", times=None)
    code, found = doctor()
    assert (code, wrong(found)) == (3, {"put-if-absent": "error", "swap": "error", "copies": "warning"})
    assert doctor.left() == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"Expiration": {"Days": 30}}, "rule r on the whole bucket deletes objects of the lake"),
        (
            {"Expiration": {"Days": 30}, "Filter": {"Prefix": "team/.bridge/"}},
            "rule r on team/.bridge/ deletes objects",
        ),
        ({"Transitions": [{"Days": 90, "StorageClass": "GLACIER"}]}, "moves objects into an archive"),
        ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}, "ends uploads after 1 days"),
    ],
)
def test_rules_that_do_harm(doctor: Doctor, rule: dict[str, Any], text: str) -> None:
    """A lifecycle rule that takes files away, or uploads that wait, is found before it strikes."""
    doctor.rule(**rule)
    code, found = doctor()
    assert (code, wrong(found)) == (0, {"lifecycle": "warning"})
    assert any(said.startswith("warning: ") and text in said for said in of(found, "lifecycle"))


@pytest.mark.parametrize(
    "rule",
    [
        {"Expiration": {"Days": 1}, "Filter": {"Prefix": "other/"}},
        {"Expiration": {"Days": 1}, "Filter": {"Tag": {"Key": "a", "Value": "b"}}},
        {"Expiration": {"Days": 1}, "Status": "Disabled"},
        {"Transitions": [{"Days": 90, "StorageClass": "GLACIER_IR"}]},
        {"NoncurrentVersionExpiration": {"NoncurrentDays": 30}},
    ],
)
def test_rules_that_do_none(doctor: Doctor, rule: dict[str, Any]) -> None:
    """A rule about other objects, or one after which tables can be read as before, is nobody's trouble."""
    doctor.rule(**rule)
    code, found = doctor()
    assert (code, wrong(found)) == (0, {})


def test_a_rule_as_advised(doctor: Doctor) -> None:
    """The report says after how many days."""
    doctor.rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 7})
    _, found = doctor()
    assert of(found, "lifecycle") == ["unfinished uploads end after 7 days, and no rule deletes files"]


@pytest.mark.parametrize("setting", ["lifecycle", "versioning", "object-lock"])
def test_settings_that_may_not_be_read(doctor: Doctor, setting: str) -> None:
    """To read what a bucket is set to is optional: the policy need not allow it."""
    doctor.refuse(rf"[?&]{setting}")
    code, found = doctor()
    assert (code, wrong(found)) == (0, {})
    assert "could not be read" in of(found, setting.replace("-", " "))[0]


def test_copies_on_no_condition(doctor: Doctor) -> None:
    """A store that copies any version of an object is reported: an upsert asks for the one that it replaces."""
    doctor.s3.fault("ignore_conditions", r"^PUT .*\.doctor-.*\.copy", times=None)
    code, found = doctor()
    assert wrong(found) == {"copies": "warning"}
    assert "x-amz-copy-source-if-match" in next(one["fix"] for one in found if one["check"] == "copies")
    assert code == 0
    assert doctor.left() == []


def test_versions_are_told(doctor: Doctor) -> None:
    """A bucket that keeps what is deleted costs more than one thinks."""
    enabled = {"Status": "Enabled"}
    doctor.s3.client().put_bucket_versioning(Bucket=doctor.bucket, VersioningConfiguration=enabled)
    code, found = doctor()
    assert (code, wrong(found)) == (0, {})
    assert "NoncurrentVersionExpiration" in of(found, "versioning")[0]
