"""Secrets: what is learned from the settings, and that nothing shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.settings.redact import SECRET_KEY, SPARK_SECRET, learn, redactor
from tests.unit.settings.settings_files import PASSWORD, Load, file_text

SECRETS = """\
config:
  user: someone
  host: "${HOST}"
  nested: {api_key: key-1234, list: [{Client_Secret: secret-5}]}
  url: postgresql://u:p%40ss-word@h/db
  dsn: host=h password=dsn-pass
  retries: ${RETRIES}
  pin_token: 98765432
  flag_auth: true
env:
  PLAIN: visible
  MY_PASSWD: env-pass
pip_url: git+https://${GIT}@example.org/tap
"""


def test_secrets_are_learned(settings: Load) -> None:
    """Expanded text, leaves under telling keys and passwords in URLs are secrets; plain settings are not."""
    environ = {"HOST": "db.internal", "RETRIES": "10000", "GIT": "git-token-1", "ARG": "arg-secret"}
    text = file_text(source=SECRETS).replace("tap-postgres", "tap-x --api-key=arg-1234 --password arg-5678 ${ARG}")
    pipeline = settings(text, environ).pipeline(None)
    assert pipeline.secrets == {
        "db.internal",
        "key-1234",
        "secret-5",
        "p%40ss-word",
        "p@ss-word",
        "host=h password=dsn-pass",
        "dsn-pass",
        "98765432",
        "env-pass",
        "git-token-1",
        "arg-1234",
        "arg-5678",
        "arg-secret",
    }


def test_secrets_of_a_config_file(settings: Load, tmp_path: Path) -> None:
    """A config file is passed untouched, and read to learn what to hide."""
    (tmp_path / "tap.json").write_text(
        json.dumps({"password": PASSWORD, "key": {"private_key": "-----B\nabcdefghijklmnopq"}})
    )
    pipeline = settings(file_text(source="config: tap.json")).pipeline(None)
    assert pipeline.secrets == {PASSWORD, "-----B\nabcdefghijklmnopq", "abcdefghijklmnopq"}


def test_no_repr_shows_a_secret(settings: Load) -> None:
    """Settings can be printed: neither config nor environment, arguments or Spark's settings show."""
    text = file_text(
        source=f"config: {{password: {PASSWORD}}}\nenv: {{A: {PASSWORD}}}\npip_url: git+https://u:{PASSWORD}@h",
        more=f"spark: {{conf: {{a.secret: {PASSWORD}}}}}",
    ).replace("tap-postgres", f"tap-postgres --password {PASSWORD}")
    loaded = settings(text)
    pipeline = loaded.pipeline(None)
    for shown in (loaded, pipeline, pipeline.source, pipeline.spark):
        assert PASSWORD not in repr(shown) + str(shown)
    assert pipeline.secrets == {PASSWORD}
    assert "tap-postgres" in repr(pipeline)


@pytest.mark.parametrize("key", ["config", "env", "catalog", "select", "idle_timeout", "pip_url", "tap"])
@pytest.mark.parametrize("value", [f"[[{PASSWORD}]]", PASSWORD, f"{{a: [{PASSWORD}]}}", f"[{{a: {PASSWORD}}}]"])
def test_no_error_shows_a_value(settings: Load, key: str, value: str) -> None:
    """Whatever is wrong with a source, its error tells the place and not the value."""
    text = file_text(source=f"{key}: {value}") if key != "tap" else file_text("").replace("tap-postgres", value)
    accepted = {("catalog", PASSWORD), ("pip_url", PASSWORD), ("tap", PASSWORD), ("config", f"{{a: [{PASSWORD}]}}")}
    if (key, value) in accepted:
        assert settings(text).pipeline(None)
        return
    with pytest.raises(SettingsError) as caught:
        settings(text)
    # The path of a file is no secret; here the password stands where a path belongs.
    assert PASSWORD not in caught.value.message.split(" path=")[0] + caught.value.hint
    assert "bridge.yaml:" in caught.value.message


def test_redactor() -> None:
    """Every secret is replaced, longest first, also where JSON or a URL escapes it."""
    redact = redactor(["abcd", "abcd-efgh", 'quo"te\n', "müller", "p@ss/word"])
    assert redact(b"x abcd-efgh abcd y") == b"x *** *** y"
    assert redact(json.dumps({"a": 'quo"te\n', "b": "müller"}).encode()) == b'{"a": "***", "b": "***"}'
    assert redact("müller p%40ss%2Fword".encode()) == b"*** ***"
    assert redact(b"nothing here") == b"nothing here"


def test_redactor_without_secrets_is_the_identity() -> None:
    """Nothing to hide costs nothing."""
    data = b"anything"
    assert redactor([])(data) is data


@pytest.mark.parametrize(
    "name",
    [
        *("password", "MY_PASSWD", "db_password", "client_secret", "api_key", "apiKey", "auth_token", "authToken"),
        *("token", "oauth_credentials", "credentials_json", "sqlalchemy_url", "connection_string", "conn", "dsn"),
        *(
            "pwd",
            "db_pwd",
            "pass",
            "client_pass",
            "dbpass",
            "clientPass",
            "account_key",
            "AccountKey",
            "sas",
            "blob_sas",
        ),
        *(
            "sig",
            "signature",
            "private_key",
            "ssl_client_private_key",
            "authorization",
            "auth",
            "aws_access_key_id",
            "--api-key",
        ),
    ],
)
def test_names_of_secrets(name: str) -> None:
    """What is called so holds a secret."""
    assert SECRET_KEY.search(name)


@pytest.mark.parametrize(
    "name",
    [
        *("next_page_token_path", "nextPageTokenPath", "ssl_certificate_authority", "author", "connection_timeout"),
        *("bypass", "compass", "passenger", "design", "sasl_mechanism", "signal"),
        *("key_properties", "signature_version"),
        *("auth_method", "token_url", "token_type", "password_file", "connector", "token_expiry", "host"),
    ],
)
def test_names_that_speak_of_a_secret(name: str) -> None:
    """What says where, how or how long is no secret itself."""
    assert not SECRET_KEY.search(name)


@pytest.mark.parametrize(
    "text",
    [
        "https://x.blob.core.windows.net/c?sv=1&sig=s3cr3t%2Fvalue&se=2",
        "DefaultEndpointsProtocol=https;AccountKey=s3cr3t%2Fvalue;EndpointSuffix=x",
        "BlobEndpoint=https://x;SharedAccessSignature=s3cr3t%2Fvalue",
        "host=h pass=s3cr3t%2Fvalue",
    ],
)
def test_secrets_within_a_text(text: str) -> None:
    """The part of a URL or a connection string that proves who asks is a secret, whatever the setting is called."""
    assert {"s3cr3t%2Fvalue", "s3cr3t/value"} <= set(learn({"place": text}))


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", True),
        ("spark.hadoop.fs.azure.sas.container.lake.blob.core.windows.net", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", True),
        ("spark.my.credentials", True),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.hadoop.hadoop.security.credential.provider.path", False),
        ("spark.hadoop.fs.azure.account.keyprovider.lake", False),
        ("spark.hadoop.fs.azure.account.auth.type", False),
        ("spark.authenticate.enableSaslEncryption", False),
        ("spark.network.timeout", False),
    ],
)
def test_secrets_of_spark(name: str, secret: bool) -> None:
    """The keys of clouds are kept from the command line and from sight; names of classes and paths are not."""
    assert bool(SPARK_SECRET.search(name)) is secret


@pytest.mark.parametrize("size", range(1, 12))
def test_pieces_are_masked_as_the_whole(size: int) -> None:
    """Cut where `settled` says, a text shows no part of a secret, in pieces of any size."""
    redact = redactor(["abcd", "cdefgh", "hhij"])
    whole, done, held = b"abcdefghhij-abc-cdefg-cdefgh-abcdabcd-hhhijcdefghhij-ab", b"", b""
    for at in range(0, len(whole), size):
        held += whole[at : at + size]
        cut = redact.settled(held)
        done, held = done + redact(held[:cut]), held[cut:]
    assert done + redact(held) == redact(whole)
