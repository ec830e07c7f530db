"""`destination` on S3: which addresses and keys are accepted, which are refused, and in which words."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.storage import lake_of
from bridge.lake.storage.s3.errors import _ACTIONS as ACTIONS
from bridge.settings.destination import S3
from bridge.settings.effective import effective, to_yaml
from bridge.settings.inline import inline_destination
from bridge.settings.load import load
from bridge.settings.values.stores import S3Options
from tests.unit.settings.settings_files import GOOD, PASSWORD, Load, pipeline_text, refused

ON_S3 = GOOD.replace("./lake", "s3://lake/team")


def s3_text(*keys: str) -> str:
    """Return settings on S3 with these keys below `s3`, from line 8."""
    lines = pipeline_text(destination="s3:").replace("./lake", "s3://lake/team")
    return lines + "".join(f"        {key}\n" for key in keys)


@pytest.mark.parametrize(
    ("written", "bucket"),
    [
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://lake/team//", "s3://lake/team"),
        ("S3://lake.example-1_x/a b/ö", "s3://lake.example-1_x/a b/ö"),
    ],
)
def test_an_address_is_brought_into_one_form(settings: Load, written: str, bucket: str) -> None:
    """However its end is written, a bucket has one name: a pipeline must not have two leases."""
    pipeline = settings(GOOD.replace("./lake", f'"{written}"')).pipeline(None)
    assert pipeline.destination.bucket == inline_destination(written).bucket == bucket
    assert pipeline.destination.store_options is None
    assert lake_of(pipeline.destination).uri == bucket


@pytest.mark.parametrize(
    ("bucket", "message", "hint"),
    [
        ("s3a://lake", "s3a:// is another tool's word", "write s3://"),
        ("s3n://lake", "s3n:// is another tool's word", "write s3://"),
        ("gcs://lake", "gcs:// is another tool's word", "write gs://"),
        ("wasbs://lake", "wasbs:// is another tool's word", "write az://"),
        ("ftp://lake", "unknown kind of bucket ftp://", "s3://lake/team, az://lake/team or gs://lake/team"),
        ("az://La", "not the name of a container of Azure", "letters, digits and hyphens, such as az://lake/team"),
        ("az://la--ke/x", "not the name of a container of Azure", "hyphens"),
        ("az://lake/a//b", "the prefix has an empty part or a dot", "such as az://lake/team"),
        (
            "abfss://lake/team",
            "not the address of a container",
            "abfss://container@account.dfs.core.windows.net/prefix",
        ),
        ("abfss://lake@account/team", "not the address of a container", "or az://container/prefix"),
        (f"az://{PASSWORD}@lake", "no keys in the address of a bucket", "from the environment"),
        ("gs://La", "not the name of a bucket of Google", "such as gs://lake/team"),
        (
            "https://lake.s3.amazonaws.com/team",
            "unknown kind of bucket https://",
            "endpoint_url of destination.s3, azure or gcs",
        ),
        ("s3://", "not the name of an S3 bucket", "3 to 63"),
        ("s3:///team", "not the name of an S3 bucket", "3 to 63"),
        ("s3://La", "not the name of an S3 bucket", "lower-case"),
        ("s3://la..ke", "not the name of an S3 bucket", "dots"),
        ("s3://192.168.0.1/x", "not the name of an S3 bucket", "such as s3://lake/team"),
        ("s3://lake?region=x", "not the name of an S3 bucket", "3 to 63"),
        (f"s3://key:{PASSWORD}@lake", "no keys in the address of a bucket", "a profile or a role"),
        ("s3://lake/a//b", "the prefix has an empty part or a dot", "single slashes"),
        ("s3://lake/../b", "the prefix has an empty part or a dot", "single slashes"),
        ("s3://lake/day=1", "a character that the prefix cannot have", "leave out"),
    ],
)
def test_addresses_that_are_refused(settings: Load, bucket: str, message: str, hint: str) -> None:
    """Another kind of bucket, and one that cannot exist, is told before anything is asked over the network."""
    error = refused(lambda: settings(GOOD.replace("./lake", bucket)).pipeline(None))
    assert f"bridge.yaml:6: {message}" in error.message
    assert hint in error.hint
    assert message in refused(lambda: inline_destination(bucket)).message


def test_keys_of_the_section(settings: Load) -> None:
    """Each key reaches the storage, which the executors have to be given."""
    text = s3_text(
        "endpoint_url: http://minio:9000/",
        "region: eu-west-1",
        "profile: etl",
        "role_arn: arn:aws:iam::123456789012:role/lake",
        "path_style: true",
        "sse: aws:kms:dsse",
        "kms_key_id: alias/lake",
        "acl: bucket-owner-full-control",
        "storage_class: INTELLIGENT_TIERING",
    )
    options = settings(text).pipeline(None).destination.store_options
    assert options == S3Options(
        endpoint_url="http://minio:9000",
        region="eu-west-1",
        profile="etl",
        role_arn="arn:aws:iam::123456789012:role/lake",
        path_style=True,
        sse="aws:kms:dsse",
        kms_key_id="alias/lake",
        acl="bucket-owner-full-control",
        storage_class="INTELLIGENT_TIERING",
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert set(S3.model_fields) == set(S3Options.__slots__)


def test_a_key_implies_its_encryption(settings: Load) -> None:
    """`kms_key_id` alone means `aws:kms`; nothing at all leaves everything to the bucket and the environment."""
    options = settings(s3_text('kms_key_id: "1234"')).pipeline(None).destination.store_options
    assert options == S3Options(sse="aws:kms", kms_key_id="1234")
    assert settings(s3_text("region: null")).pipeline(None).destination.store_options == S3Options()


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("endpoint: http://x", "unknown key pipelines.flights.destination.s3.endpoint", 'did you mean "endpoint_url"?'),
        ("secret: x", "unknown key pipelines.flights.destination.s3.secret", "the keys here are"),
        ("endpoint_url: minio:9000", "must be the address of a server", "such as https://"),
        ("endpoint_url: ftp://minio", "must be the address of a server", "such as https://"),
        ("endpoint_url: http://minio:port", "must be the address of a server", "such as https://"),
        (f"endpoint_url: https://me:{PASSWORD}@minio", "no keys in the address of a server", "a profile or a role"),
        ("endpoint_url: https://minio/lake", "must be the address of a server alone", "destination.bucket"),
        ("region: ''", "must not be empty", "remove the key"),
        ("region: 5", "must be text", "quote it"),
        ("role_arn: lake", "must be the ARN of a role", "arn:aws:iam::"),
        ("role_arn: arn:aws:iam::123456789012:user/me", "must be the ARN of a role", "arn:aws:iam::"),
        ("path_style: maybe", "must be true or false", "without quotes"),
        ("sse: kms", "must be AES256, aws:kms or aws:kms:dsse", 'did you mean "aws:kms"?'),
        ("acl: everybody", "must be private, public-read", "choose one"),
        ("storage_class: STANDART", "must be STANDARD, ", 'did you mean "STANDARD"?'),
        ("storage_class: GLACIER", "an archive cannot be read", "GLACIER_IR"),
        ("storage_class: DEEP_ARCHIVE", "an archive cannot be read", "GLACIER_IR"),
    ],
)
def test_keys_that_are_refused(settings: Load, key: str, message: str, hint: str) -> None:
    """A key that means nothing to S3 is told with its line, and never with a password."""
    error = refused(lambda: settings(s3_text(key)).pipeline(None))
    assert f"bridge.yaml:8: {message}" in error.message
    assert hint in error.hint


def test_keys_that_contradict_each_other(settings: Load) -> None:
    """A key of one's own with AES256, and S3's keys for a folder, are refused; null takes the section away again."""
    error = refused(lambda: settings(s3_text("sse: AES256", "kms_key_id: alias/x")).pipeline(None))
    assert error.message.startswith(f"{error.message.split(':')[0]}:9: AES256 has no key of yours")
    folder = pipeline_text(destination="s3: {region: x}")
    error = refused(lambda: settings(folder).pipeline(None))
    assert ":7: these keys are for an s3:// bucket key=pipelines.flights.destination.s3" in error.message
    assert settings(folder.replace("{region: x}", "null")).pipeline(None).destination.store_options is None


LAYERS = """\
defaults:
  destination: {bucket: "s3://${TEAM}-lake/x", s3: {region: eu-west-1, endpoint_url: "${STORE:-https://s3.example.com}"}}
environments:
  dev:
    defaults:
      destination: {bucket: ./lake, s3: null}
  prod:
    defaults:
      destination: {s3: {storage_class: STANDARD_IA}}
pipelines:
  flights:
    source: {tap: tap-x, config: {password: "${NOWHERE}"}}
"""


def test_layers_and_variables(tmp_path: Path) -> None:
    """Environments lay keys over each other, and a verb that only looks at the lake has them without the source."""
    (tmp_path / "bridge.yaml").write_text(LAYERS)

    def look(env: str | None) -> Any:
        return load(tmp_path / "bridge.yaml", {"TEAM": "blue"}, env).pipeline(None, source=False).destination

    server = "https://s3.example.com"
    assert (look(None).bucket, look(None).store_options) == ("s3://blue-lake/x", S3Options(server, "eu-west-1"))
    assert look("prod").store_options == S3Options(server, "eu-west-1", storage_class="STANDARD_IA")
    assert (look("dev").bucket, look("dev").store_options) == (str(tmp_path / "lake"), None)


def test_what_is_shown_is_read_again(settings: Load) -> None:
    """`config show` writes the section so that the same settings come of it."""
    text = s3_text("endpoint_url: https://minio:9000", "path_style: true")
    pipeline = settings(text).pipeline(None)
    data, _ = effective(pipeline, every=False)
    assert data["destination"]["s3"] == {"endpoint_url": "https://minio:9000", "path_style": True}
    again = settings("\n".join(to_yaml({"pipelines": {"flights": data}})) + "\n").pipeline(None)
    assert again.destination == pipeline.destination


def test_the_policy_that_is_printed() -> None:
    """docs/s3.md allows each action that an error can ask for, and nothing by a star."""
    text = (Path(__file__).parents[3] / "docs/s3.md").read_text().split("```json\n")[1].split("```")[0]
    statements = json.loads(text)["Statement"]
    said = [one["Action"] for one in statements]
    allowed = {action for actions in said for action in ([actions] if isinstance(actions, str) else actions)}
    named = {word for actions in ACTIONS.values() for word in actions.split() if ":" in word}
    assert named | {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"} <= allowed
    assert not [action for action in allowed if "*" in action]


def test_a_folder_needs_no_boto3(tmp_path: Path) -> None:
    """boto3 takes a while to load: whoever has a folder does not pay for it."""
    code = (
        "import sys, bridge.load.run.run, bridge.lake.state.store, bridge.load.write.task; "
        "from bridge.lake.storage import open_storage; "
        f"open_storage({str(tmp_path)!r}).prepare(); "
        "sys.exit(any(name.split('.')[0] in ('boto3', 'botocore') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
