"""`destination` on Azure: what goes together, and that a token is shown nowhere."""

from __future__ import annotations

import pytest

from bridge.settings.destination import Azure
from bridge.settings.effective import effective, to_yaml
from bridge.settings.values.stores import AzureOptions
from tests.unit.settings.settings_files import Load, pipeline_text, refused

KEY = "dmVyeS1zZWNyZXQta2V5"
SAS = "sv=2026-01-01&sp=rwdlac&sig=dmVyeS1zZWNyZXQ%3D"


def _text(*keys: str) -> str:
    lines = pipeline_text(destination="azure:").replace("./lake", "az://lake/team")
    return lines + "".join(f"        {key}\n" for key in keys)


def test_a_token_is_a_secret(settings: Load) -> None:
    """A SAS token, from a variable or not, is hidden like the tap's secrets: whole, and its signature."""
    for written in ("${TOKEN}", SAS):
        pipeline = settings(_text("account: contoso", f'sas_token: "{written}"'), {"TOKEN": SAS}).pipeline(None)
        assert SAS in pipeline.secrets
        shown = "".join(to_yaml(*effective(pipeline, every=True))) + repr(pipeline.destination.store_options)
        assert "dmVyeS1zZWNyZXQ" not in shown
        assert pipeline.destination.store_options.sas_token == SAS  # type: ignore[union-attr]


def test_iceberg_asks_for_the_address_that_its_engines_know(settings: Load) -> None:
    """Iceberg's metadata names files by their URI, and no engine of Iceberg knows `az://`."""
    text = pipeline_text(destination="format: iceberg").replace("./lake", "az://lake/team")
    error = refused(lambda: settings(text).pipeline(None))
    assert "Iceberg's engines do not know az://" in error.message
    assert "abfss://" in error.hint


def test_an_accounts_key_is_a_secret(settings: Load) -> None:
    """A key, from a variable or not, is hidden everywhere, and goes to the store."""
    for written in ("${SALES_KEY}", KEY):
        pipeline = settings(_text("account: contoso", f'account_key: "{written}"'), {"SALES_KEY": KEY}).pipeline(None)
        assert KEY in pipeline.secrets
        shown = "".join(to_yaml(*effective(pipeline, every=True))) + repr(pipeline)
        assert KEY not in shown + repr(pipeline.destination.store_options)
        assert pipeline.destination.store_options == AzureOptions("contoso", account_key=KEY)


def test_each_key_is_an_option() -> None:
    """What the section has, the storage takes."""
    assert set(Azure.model_fields) == set(AzureOptions.__slots__)


def test_each_pipeline_has_its_own_account(settings: Load) -> None:
    """Two accounts in one file: each destination has its own key, and knows no secret of the other."""
    text = """
pipelines:
  sales:
    source: {tap: tap-x}
    destination: {bucket: az://lake/x, azure: {account: sales, account_key: "${SALES}"}}
  hr:
    source: {tap: tap-x}
    destination: {bucket: az://lake/x, azure: {account: people, sas_token: "${HR}"}}
"""
    of = settings(text, {"SALES": KEY, "HR": SAS}).pipelines
    sales, hr = (of[name].destination for name in ("sales", "hr"))
    assert sales.store_options == AzureOptions("sales", account_key=KEY)
    assert hr.store_options == AzureOptions("people", sas_token=SAS)
    assert sales.place != hr.place
    assert KEY not in of["hr"].secrets and SAS not in of["sales"].secrets


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        (["account_key: not-a-key!"], "not the key of a storage account key=", "key1 or key2"),
        (["account_key: ''"], "must not be empty key=", "remove the key"),
        (["sas_token: dmVyeS1zZWNyZXQ"], "not a SAS token key=", "account_key"),
        (["sas_token: https://x.blob.core.windows.net/?sig=a"], "not a SAS token key=", "follows the ?"),
        ([f"account_key: {KEY}", f"sas_token: {SAS}"], "account_key is set, too key=", "account_key: null"),
        ([f"sas_token: {SAS}", "credential: default"], "sas_token is set, too key=", "keep one of them"),
    ],
)
def test_what_is_no_credential(settings: Load, keys: list[str], message: str, hint: str) -> None:
    """What cannot be a key or a token is refused before anything starts, and not shown; so are two credentials."""
    error = refused(lambda: settings(_text(*keys)).pipeline(None))
    assert message in error.message and hint in error.hint
    shown = error.message + error.hint
    assert "not-a-key" not in shown and "dmVyeS" not in shown and "sig=a" not in shown
