"""A container of Azure Blob Storage, also of an account with a hierarchical namespace (Data Lake Storage Gen2)."""

from __future__ import annotations

from importlib.util import find_spec

from bridge.errors import SettingsError
from bridge.lake.storage.objects import ObjectStorage
from bridge.settings.values.stores import AzureOptions


def azure_storage(uri: str, options: AzureOptions | None = None) -> ObjectStorage:
    """The storage at `az://container/folder` or `abfss://container@account.dfs.core.windows.net/folder`.

    Raises `SettingsError` if Azure's library is not installed.
    """
    if not find_spec("azure") or not find_spec("azure.storage") or not find_spec("azure.storage.blob"):
        hint = 'pip install "singer-bridge[azure]"'
        raise SettingsError("this bucket needs the package azure-storage-blob", hint=hint, bucket=uri)
    from bridge.lake.storage.azure.store import AzureStore

    return ObjectStorage(uri, AzureStore.of(uri, options or AzureOptions()))
