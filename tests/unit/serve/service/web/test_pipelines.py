"""The pipelines of the page: each in its own account, and with the key that the file has now."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.lake.storage.azure.store import AzureStore
from bridge.lake.storage.objects import ObjectStorage
from bridge.serve.service.web.pipelines import ListedPipeline, ServedPipelines

_FILE = """\
pipelines:
  sales:
    source: {{tap: tap-x}}
    destination:
      bucket: az://lake/x
      azure: {{endpoint_url: "http://127.0.0.1:9/sales", account_key: "{sales}"}}
  people:
    source: {{tap: tap-x}}
    destination:
      bucket: az://lake/x
      azure: {{endpoint_url: "http://127.0.0.1:9/people", account_key: "{people}"}}
"""


def _key(shown: ListedPipeline) -> str | None:
    assert isinstance(shown.lake.storage, ObjectStorage) and isinstance(shown.lake.storage.store, AzureStore)
    return shown.lake.storage.store.options.account_key


def test_a_new_key_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two accounts with a container of one name are two buckets; after a key was changed, the page uses the new one."""
    monkeypatch.setattr("bridge.lake.storage.azure.clients._ATTEMPTS", 1)
    file = tmp_path / "bridge.yaml"
    file.write_text(_FILE.format(sales="b25l", people="dHdv"))
    pipelines = ServedPipelines(file, None)
    assert {name: _key(shown) for name, shown in pipelines.all().items()} == {"sales": "b25l", "people": "dHdv"}
    assert len(pipelines._buckets()) == 2
    file.write_text(_FILE.format(sales="dGhyZWU=", people="dHdv"))
    assert {name: _key(shown) for name, shown in pipelines.all().items()} == {"sales": "dGhyZWU=", "people": "dHdv"}
