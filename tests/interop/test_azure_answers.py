"""What Azure may answer and Azurite never does: copies that take time or fail; folders in listings; lost answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from bridge.errors import LakeError
from bridge.lake.storage import Change
from bridge.lake.storage.conditional import Passing
from bridge.lake.storage.objects import ObjectStorage
from tests.contract.lakes import pend, table, waiting
from tests.interop.azureproxy import Proxy
from tests.interop.azurite import Azurite, service


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    with Azurite() as server:
        yield server


@pytest.fixture
def proxy(azurite: Azurite) -> Iterator[Proxy]:
    with Proxy(azurite.endpoint) as proxy:
        yield proxy


@pytest.fixture
def storage(azurite: Azurite, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """A new container, reached through the proxy."""
    string = azurite.environ["AZURE_STORAGE_CONNECTION_STRING"].replace(azurite.endpoint, proxy.endpoint)
    container = azurite.bucket(uuid.uuid4().hex)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", string)
    storage: ObjectStorage = azurite.storage(f"az://{container}/team")
    return storage


class _Copy:
    """Copies to `key` stay in a state for so many looks."""

    def __init__(self, key: str, state: str, looks: int) -> None:
        self.key, self.state, self.looks = key, state, looks

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> str:
        if path.partition("?")[0].endswith(self.key) and "x-ms-copy-status" in headers and self.looks:
            self.looks -= method == "HEAD"
            headers["x-ms-copy-status"] = "pending" if method == "PUT" else self.state
            if method == "HEAD":
                headers["content-length"] = "0"  # what Azure shows before a copy is complete
        return ""


def test_a_copy_that_takes_its_time(storage: ObjectStorage, proxy: Proxy) -> None:
    """A copy that is under way is waited for; the file is visible afterwards."""
    adds = pend(storage, "a.parquet")
    proxy.rule = slow = _Copy("t/a.parquet", "pending", 3)
    storage.publish([Change("t", adds)])
    assert (slow.looks, storage.read("t/a.parquet"), waiting(storage)) == (0, b"a.parquet", set())


def test_a_copy_under_way_when_its_writer_died(storage: ObjectStorage, proxy: Proxy) -> None:
    """The next run waits for the copy of the last one, and takes it for what it becomes."""
    (add,) = pend(storage, "a.parquet")
    storage.store.copy(add.source, add.key)
    proxy.rule = slow = _Copy("t/a.parquet", "pending", 2)
    storage.publish([Change("t", (add,))])
    assert (slow.looks, storage.read("t/a.parquet"), waiting(storage)) == (0, b"a.parquet", set())


@pytest.mark.parametrize("state", ["failed", "aborted"])
def test_a_copy_that_fails(storage: ObjectStorage, proxy: Proxy, state: str) -> None:
    """What a failed copy leaves is deleted, the error says so, and publishing again is as if it had never been."""
    adds = pend(storage, "a.parquet")
    proxy.rule = _Copy("t/a.parquet", state, 1)
    with pytest.raises(LakeError, match="did not finish a copy") as caught:
        storage.publish([Change("t", adds)])
    assert caught.value.hint
    assert (table(storage), list(storage.missing_pending(adds))) == (set(), [])
    storage.publish([Change("t", adds)])
    assert storage.read("t/a.parquet") == b"a.parquet"


def test_folders_of_a_hierarchical_namespace(storage: ObjectStorage, azurite: Azurite) -> None:
    """An account with such a namespace lists folders as objects with a mark: no listing of ours shows one as a file."""
    container = service(azurite.environ).get_container_client(storage.uri.split("/")[2])
    for name in ("team/t", "team/t/day=1"):
        container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})
    storage.write("t/day=1/a", b"x")
    assert (list(storage.walk("t")), set(storage.list("t")), list(storage.walk(""))) == (
        ["day=1/a"],
        {"day=1"},
        ["t/day=1/a"],
    )


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "GET"])
def test_an_answer_is_lost(storage: ObjectStorage, proxy: Proxy, method: str) -> None:
    """A request has its effect, its answer is lost, and it is sent again: everything is there once."""
    for step in range(4):
        seen = 0

        def lose(sent: str, path: str, headers: dict[str, str], step: int = step) -> str:
            nonlocal seen
            seen += sent == method
            return "reset" if sent == method and seen == step + 1 else ""

        proxy.rule = lose
        assert storage.put_if_absent(f"{step}/number", b"own")
        assert storage.compare_and_swap(f"{step}/swap", b"own", None)
        adds = pend(storage, f"{step}.parquet")
        storage.publish([Change("t", adds)])
        assert storage.read(f"t/{step}.parquet") == f"{step}.parquet".encode()
        assert waiting(storage) == set()


def test_a_condition_is_sent_once(storage: ObjectStorage, proxy: Proxy) -> None:
    """The library itself never repeats a conditional put: a refusal would not tell who won."""
    count = len(proxy.log)
    proxy.rule = lambda *_: "reset"
    with pytest.raises(Passing):
        storage.store.put_once("k", b"x", None)
    assert len(proxy.log) == count + 1
