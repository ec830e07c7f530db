"""What `tables ddl` prints for a lake on Azure: each engine gets the address that it knows, and never a key."""

from __future__ import annotations

import pytest

from bridge.operate.readers.azure import as_engine_names
from bridge.operate.readers.ddl import DIALECTS, statement
from bridge.operate.readers.delta import delta_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import AzureOptions

COLUMNS = [{"name": "id", "type": "int64"}]
AZ, ABFSS = "az://lake/team", "abfss://lake@contoso.dfs.core.windows.net/team"
ACCOUNT = AzureOptions("contoso")
EMULATOR = AzureOptions("dev", "http://127.0.0.1:10000/dev")


def _table(dialect: str, bucket: str = AZ, azure: AzureOptions = ACCOUNT) -> Table:
    return as_engine_names(Table("shop/orders", COLUMNS, bucket, bucket, azure=azure), dialect)


def _text(dialect: str, bucket: str = AZ, azure: AzureOptions = ACCOUNT, *, manifest: bool = False) -> str:
    return statement(_table(dialect, bucket, azure), dialect, manifest=manifest)


@pytest.mark.parametrize("bucket", [AZ, ABFSS])
def test_each_engine_gets_its_address(bucket: str) -> None:
    """Spark and Trino know `abfss://` only, DuckDB `az://`; pyarrow wants container and path."""
    assert f"LOCATION '{ABFSS}/shop/orders'" in _text("spark", bucket)
    assert f"{ABFSS}/shop/orders" in _text("trino", bucket)
    assert f"read_parquet('{AZ}/shop/orders/*.parquet'" in _text("duckdb", bucket)
    assert 'ds.dataset("lake/team/shop/orders"' in _text("pyarrow", bucket)
    assert f'"{bucket}/shop/orders/"' in _text("polars", bucket)


def test_what_an_engine_needs_first() -> None:
    """The account stands in the statement, the key never: a secret of DuckDB signs in, or has a gap for it."""
    assert "-- first: CREATE SECRET (TYPE azure, PROVIDER credential_chain, ACCOUNT_NAME 'contoso');" in _text("duckdb")
    assert "AccountKey=...;BlobEndpoint=http://127.0.0.1:10000/dev'" in _text("duckdb", azure=EMULATOR)
    assert "spark.hadoop.fs.azure.account.key.contoso.dfs.core.windows.net" in _text("spark")
    assert 'azure = fs.AzureFileSystem(account_name="contoso")' in _text("pyarrow")
    assert '{"azure_storage_account_name": "contoso"}' in _text("polars")
    assert '"azure_storage_endpoint": "http://127.0.0.1:10000/dev", "azure_allow_http": "true"' in _text(
        "polars", azure=EMULATOR
    )
    assert "azure://contoso.blob.core.windows.net/" in _text("snowflake")
    assert "s3://..." in _text("athena")


def test_by_the_manifest() -> None:
    """pyarrow gets the manifest's files as it names them, whichever address they have there."""
    assert 'line.removeprefix("az://")' in _text("pyarrow", manifest=True)
    assert f'line.replace("{ABFSS}", "lake/team", 1)' in _text("pyarrow", ABFSS, manifest=True)
    assert 'azure.open_input_stream("lake/team/.bridge/tables/shop/orders.manifest")' in _text("pyarrow", manifest=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_code_is_python(dialect: str) -> None:
    """Each statement can be made, and code compiles."""
    for azure in (ACCOUNT, EMULATOR, AzureOptions()):
        text = _text(dialect, azure=azure)
        if dialect in ("polars", "pyarrow"):
            compile(text, dialect, "exec")


def test_delta() -> None:
    """Delta's own readers get the account, too."""
    assert '{"azure_storage_account_name": "contoso"}' in delta_statement(_table("polars"), "polars")
    assert "CREATE SECRET (TYPE azure" in delta_statement(_table("duckdb"), "duckdb")
    assert f"LOCATION '{ABFSS}/shop/orders'" in delta_statement(_table("spark"), "spark")
