"""Which account and which credential an `az://` bucket is opened with; and that nothing shows a key."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError

from bridge.errors import LakeError, SettingsError
from bridge.lake.storage import open_storage
from bridge.lake.storage.azure import azure_storage
from bridge.lake.storage.azure.clients import access_to
from bridge.lake.storage.azure.errors import explain, is_absent, is_passing, is_refused
from bridge.settings.values.stores import AzureOptions

KEY, SAS = "c2VjcmV0LWtleQ==", "sv=2026-01-01&sp=rwdlac&sig=c2VjcmV0%2Bc2ln"
CONNECTION = f"DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={KEY};EndpointSuffix=core.example"
EMULATOR = f"AccountName=dev;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:10000/dev;"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("host", "options", "environ", "expected"),
    [
        ("", AzureOptions("lake", sas_token=f"?{SAS}"), {}, ("https://lake.blob.core.windows.net", "lake", "sas")),
        (
            "",
            AzureOptions("lake", account_key=KEY),
            {"SAS_TOKEN": SAS},
            ("https://lake.blob.core.windows.net", "lake", "key"),
        ),
        (
            "",
            AzureOptions("lake", sas_token=SAS),
            {"CONNECTION_STRING": CONNECTION, "KEY": KEY},
            ("https://lake.blob.core.example", "lake", "sas"),
        ),
        (
            "",
            AzureOptions("other"),
            {"ACCOUNT": "lake", "KEY": KEY, "SAS_TOKEN": SAS},
            ("https://other.blob.core.windows.net", "other", "login"),
        ),
        ("", AzureOptions(), {"CONNECTION_STRING": CONNECTION}, ("https://lake.blob.core.example", "lake", "key")),
        ("", AzureOptions(), {"CONNECTION_STRING": EMULATOR}, ("http://127.0.0.1:10000/dev", "dev", "key")),
        (
            "",
            AzureOptions("other"),
            {"CONNECTION_STRING": CONNECTION, "SAS_TOKEN": SAS},
            ("https://other.blob.core.windows.net", "other", "sas"),
        ),
        (
            "",
            AzureOptions(credential="default"),
            {"CONNECTION_STRING": CONNECTION, "KEY": KEY},
            ("https://lake.blob.core.example", "lake", "login"),
        ),
        ("", AzureOptions(), {"ACCOUNT": "lake", "KEY": KEY}, ("https://lake.blob.core.windows.net", "lake", "key")),
        (
            "",
            AzureOptions(),
            {"ACCOUNT_NAME": "lake", "ACCOUNT_KEY": KEY},
            ("https://lake.blob.core.windows.net", "lake", "key"),
        ),
        (
            "lake.dfs.core.windows.net",
            AzureOptions(),
            {"ACCOUNT": "other"},
            ("https://lake.blob.core.windows.net", "lake", "login"),
        ),
        (
            "",
            AzureOptions(endpoint_url="https://lake.blob.core.chinacloudapi.cn"),
            {"KEY": KEY},
            ("https://lake.blob.core.chinacloudapi.cn", "lake", "key"),
        ),
    ],
)
def test_the_address_then_the_settings_then_the_environment(
    host: str,
    options: AzureOptions,
    environ: dict[str, str],
    expected: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The account of the nearest place counts, a key of another account never; `default` passes all keys over."""
    for name, value in environ.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    access = access_to(host, options)
    (kind,) = (name for name in ("key", "sas", "login") if getattr(access, name))
    assert (access.endpoint, access.account, kind) == expected
    assert "secret" not in repr(access) and "c2Vj" not in repr(access) + repr(options)


def test_no_account_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an account, and with two, the settings are wrong."""
    with pytest.raises(SettingsError, match="no storage account") as caught:
        open_storage("az://lake/team").read("k")
    assert "AZURE_STORAGE_ACCOUNT" in caught.value.hint
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    with pytest.raises(SettingsError, match="two storage accounts"):
        open_storage("abfss://lake@one.dfs.core.windows.net/team", AzureOptions("two")).read("k")


@pytest.mark.parametrize("uri", ["az://", "az://lake@one.dfs.core.windows.net", "abfss://lake/team"])
def test_an_address_that_names_no_container(uri: str) -> None:
    """An address that the settings would refuse is refused here, too."""
    with pytest.raises(SettingsError, match="not the address of a container"):
        open_storage(uri)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Azure's library the error says what to install."""
    monkeypatch.setattr("bridge.lake.storage.azure.find_spec", lambda name: None)
    with pytest.raises(SettingsError) as caught:
        azure_storage("az://lake")
    assert caught.value.hint == 'pip install "singer-bridge[azure]"'


def test_a_lake_in_a_folder_loads_nothing_of_azure(tmp_path: Path) -> None:
    """The library is imported when a bucket of Azure is opened, not before."""
    code = "import sys; from bridge.lake.storage import open_storage; open_storage(sys.argv[1]).list('');"
    code += "sys.exit(any(name.startswith('azure') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_options_travel() -> None:
    """Options are plain values: they are pickled to the executors."""
    options = AzureOptions("lake", sas_token=SAS)
    assert pickle.loads(pickle.dumps(options)) == options


def test_unreachable_store(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A store that does not answer is an error of the lake with a hint; neither it nor a log has the token."""
    monkeypatch.setattr("bridge.lake.storage.azure.clients._ATTEMPTS", 1)
    caplog.set_level(logging.DEBUG)
    storage = open_storage("az://lake", AzureOptions(endpoint_url="http://127.0.0.1:9/dev", sas_token=SAS))
    with pytest.raises(LakeError, match="cannot read") as caught:
        storage.read("k")
    assert "check the network" in caught.value.hint
    shown = caught.value.message + caplog.text + repr(caught.getrepr(style="long"))
    assert "c2VjcmV0" not in shown


def _answer(status: int, code: str, text: str = "") -> HttpResponseError:
    kind = ResourceNotFoundError if status == 404 else HttpResponseError
    error = kind(text or "the store's own words")
    error.status_code, error.error_code = status, code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (404, "ContainerNotFound", "create the container"),
        (403, "AuthenticationFailed", "AZURE_STORAGE_KEY"),
        (403, "AuthorizationPermissionMismatch", "Storage Blob Data Contributor"),
        (403, "KeyBasedAuthenticationNotPermitted", "credential to default"),
        (403, "SomethingNew", "Storage Blob Data Contributor"),
        (409, "BlobImmutableDueToPolicy", "exclude the lake"),
        (409, "BlobArchived", "archive tier"),
        (412, "LeaseIdMissing", "break the lease"),
        (503, "ServerBusy", "too busy"),
        (500, "InternalError", "nothing that was committed is lost"),
        (400, "InvalidInput", "manual"),
    ],
)
def test_each_answer_has_a_hint(status: int, code: str, hint: str) -> None:
    """What Azure refuses is told so that the operator knows what to change."""
    error = explain(_answer(status, code), "write", "az://lake/k")
    assert hint in error.hint
    assert error.message.startswith("cannot write: ") and error.message.endswith(" at=az://lake/k")


@pytest.mark.parametrize(
    ("options", "environ", "origin"),
    [
        (AzureOptions("lake", account_key=KEY), {}, "destination.azure.account_key is not a key of the account lake"),
        (AzureOptions("lake", sas_token=SAS), {}, "destination.azure.sas_token is not a SAS token of the account lake"),
        (AzureOptions("lake"), {"ACCOUNT_KEY": KEY}, "AZURE_STORAGE_ACCOUNT_KEY is not a key of the account lake"),
        (AzureOptions(), {"CONNECTION_STRING": CONNECTION}, "AZURE_STORAGE_CONNECTION_STRING is not a key of"),
    ],
)
def test_a_wrong_key_names_its_setting(
    options: AzureOptions, environ: dict[str, str], origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the store takes a key or a token for wrong, the hint says which setting or variable it came from."""
    for name, value in environ.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    error = explain(_answer(403, "AuthenticationFailed"), "read", "az://lake/k", access_to("", options))
    assert error.hint.startswith(origin)
    assert KEY not in error.message + error.hint and SAS not in error.message + error.hint


@pytest.mark.parametrize(("until", "expired"), [("2020-01-01T00:00:00Z", True), ("2020-01-01", True), ("x", False)])
def test_an_expired_token_says_when(until: str, expired: bool) -> None:
    """A token that has expired by its own words is said to have, with the time and the setting; no other is."""
    access = access_to("", AzureOptions("lake", sas_token=f"sv=x&se={until.replace(':', '%3A')}&sig=c2Vj"))
    for code in ("AuthenticationFailed", "AuthorizationFailure"):
        error = explain(_answer(403, code), "read", "az://lake/k", access)
        assert ("the SAS token has expired" in error.message) is expired
        assert "destination.azure.sas_token" in error.hint
        assert (f"it ended at {until}" in error.hint) is expired
    error = explain(_answer(503, "ServerBusy"), "read", "az://lake/k", access)
    assert "expired" not in error.message


def test_what_an_answer_means() -> None:
    """A condition that does not hold, an object that is not there, and a failure that may pass are told apart."""
    answers = {
        (404, "BlobNotFound"): "absent",
        (404, "CannotVerifyCopySource"): "absent",
        (404, "ContainerNotFound"): "",
        (409, "BlobAlreadyExists"): "refused",
        (409, "BlobImmutableDueToPolicy"): "",
        (412, "ConditionNotMet"): "refused",
        (412, "SourceConditionNotMet"): "refused",
        (412, "LeaseIdMissing"): "",
        (503, "ServerBusy"): "passing",
        (501, "NotImplemented"): "",
        (429, ""): "passing",
    }
    tests = {"absent": is_absent, "refused": is_refused, "passing": is_passing}
    seen = {key: "".join(name for name, test in tests.items() if test(_answer(*key))) for key in answers}
    assert seen == answers
    assert is_passing(ServiceRequestError("no route"))


@pytest.mark.parametrize(
    "text",
    [
        f"Max retries exceeded with url: /lake/k?{SAS} (Caused by ...)",
        f"bad: AccountName=lake;AccountKey={KEY};BlobEndpoint=x",
        f"bad: SharedAccessSignature={SAS}",
    ],
)
def test_a_quoted_text_is_masked(text: str) -> None:
    """What the library quotes has no signature and no key."""
    assert "c2Vj" not in explain(ServiceRequestError(text), "read", "az://lake/k").message


def test_options_for_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs and Polars get the account, its address and one credential, by the names that they take."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", EMULATOR)
    assert open_storage("az://lake").for_libraries() == {
        "azure_storage_account_name": "dev",
        "azure_storage_account_key": KEY,
        "azure_storage_endpoint": "http://127.0.0.1:10000/dev",
        "azure_allow_http": "true",
    }
    login = SimpleNamespace(get_token=lambda scope: SimpleNamespace(token=f"token for {scope}"))
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda: login)
    options = open_storage("az://lake", AzureOptions("other", credential="default")).for_libraries()
    assert options["azure_storage_token"] == "token for https://storage.azure.com/.default"
    assert "azure_storage_account_key" not in options
