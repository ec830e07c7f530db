"""What Google's store and library refuse is told so that the operator knows what to change; no message has a secret."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core.exceptions import from_http_status
from google.api_core.retry import Retry
from google.auth.exceptions import RefreshError

from bridge.errors import LakeError, SettingsError
from bridge.lake.storage import open_storage
from bridge.lake.storage.conditional import Passing, Refused
from bridge.lake.storage.gcs.clients import client, is_anonymous
from bridge.lake.storage.gcs.errors import explain, is_passing
from bridge.lake.storage.gcs.store import GcsStore
from bridge.settings.values.stores import GcsOptions

SESSION = "AAFs-the-name-of-an-upload"


class Google:
    """A server that gives the same answer to each request."""

    def __init__(self) -> None:
        google = self
        self.status, self.error, self.requests = 200, {}, list[str]()  # type: ignore[var-annotated]

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                google.requests.append(f"{self.command} {self.path}")
                body = json.dumps({"error": google.error}).encode()
                self.send_response(google.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = _handle

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, status: int, reason: str = "", message: str = "") -> None:
        self.status = status
        self.error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    monkeypatch.setattr("bridge.lake.storage.gcs.store._PATIENCE", Retry(predicate=lambda _: False))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    made = Google()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def store(google: Google) -> Iterator[GcsStore]:
    options = GcsOptions(endpoint_url=f"http://127.0.0.1:{google.server.server_address[1]}")
    yield GcsStore.of("gs://lake/team", options)
    client(options).close()


REFUSALS = {
    (403, "forbidden"): "roles/storage.objectUser",
    (403, "retentionPolicyNotMet"): "remove the bucket's retention policy",
    (403, "objectUnderActiveHold"): "default hold",
    (400, "userProjectMissing"): "destination.gcs.project",
    (429, "rateLimitExceeded"): "commit less often",
    (503, "backendError"): "check the network and the store",
    (400, "invalid"): "see the store's message",
}


@pytest.mark.parametrize(("refusal", "hint"), REFUSALS.items(), ids=str)
def test_each_refusal_has_its_hint(google: Google, store: GcsStore, refusal: tuple[int, str], hint: str) -> None:
    """The message has the store's own word, and the object; the hint says what to change, whatever was tried."""
    google.answer(*refusal, message="this is the store's word.")
    upload = store.upload("a")
    acts: list[Any] = [
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: store.put("a", b"x"),
        lambda: store.copy("a", "b"),
        lambda: store.delete("a"),
        lambda: list(store.list("", deep=True)),
        lambda: upload.add(b"x" * 16 * 1024**2),
    ]
    for act in acts:
        with pytest.raises(LakeError) as caught:
            act()
        assert hint in caught.value.hint
        assert f"this is the store's word ({refusal[0]})" in caught.value.message
        assert "at=gs://lake/team/" in caught.value.message
    upload.discard()


def test_a_conditional_put_tells_what_it_was(google: Google, store: GcsStore) -> None:
    """412 is a refusal, what may pass is passing, all else is an error; no generation is asked for that cannot be."""
    for status, kind in ((412, Refused), (429, Passing), (503, Passing), (408, Passing), (403, LakeError)):
        google.answer(status)
        with pytest.raises(kind):
            store.put_once("a", b"x", "7")
    google.requests.clear()
    for etag in ("0", "000", "abc", ""):
        with pytest.raises(Refused):
            store.put_once("a", b"x", etag)
    assert google.requests == []


def test_a_missing_bucket(google: Google, store: GcsStore) -> None:
    """What is not there is nothing to a reader; a writer is told to create the bucket."""
    google.answer(404, "notFound", "The specified bucket does not exist.")
    assert (store.get("a"), store.head("a")) == (None, None)
    store.delete("a")
    with pytest.raises(LakeError, match="The specified bucket does not exist") as caught:
        store.put_once("a", b"x", None)
    assert "gcloud storage buckets create" in caught.value.hint


def test_nothing_else_is_asked(google: Google, store: GcsStore) -> None:
    """One call is one request, also with a project that pays: Google's library asks nothing in the background."""
    google.answer(404)
    paying = GcsStore("lake", "team/", GcsOptions("payer", store.options.endpoint_url))
    store.get("a")
    paying.head("a")
    assert [request.partition("?")[0] for request in google.requests] == [
        "GET /download/storage/v1/b/lake/o/team%2Fa",
        "GET /storage/v1/b/lake/o/team%2Fa",
    ]
    assert ["userProject=payer" in request for request in google.requests] == [False, True]
    client(paying.options).close()


def test_no_secret_is_shown() -> None:
    """An upload's name, which is all that one needs to write to it, is in no message; nor is what a login answers."""
    url = f"/upload/storage/v1/b/lake/o?uploadType=resumable&upload_id={SESSION}"
    assert "sign in again" in explain(from_http_status(401, "no"), "read", "gs://lake/a").hint
    for error in (requests.ConnectionError(f"Max retries exceeded with url: {url}"), RefreshError(SESSION)):
        explained = explain(error, "write", "gs://lake/team/a")
        assert SESSION not in f"{explained.message}{explained.hint}"
        assert explained.hint
    assert is_passing(requests.ConnectionError("reset"))
    assert not is_passing(requests.exceptions.SSLError("CERTIFICATE_VERIFY_FAILED"))


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "was not found"), ("{", "not a valid json file"), ('{"type": "x"}', "type")]
)
def test_a_file_of_credentials_that_is_none(tmp_path: Path, content: str | None, reason: str) -> None:
    """A missing or broken file is an error of the lake at the first request, with what to set; none of it is shown."""
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(LakeError, match=reason) as caught:
        open_storage("gs://lake", GcsOptions(credentials_file=str(file))).read("a")
    assert "credentials_file" in caught.value.hint


def test_who_is_anonymous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an emulator is asked without credentials, and only if none are named."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    local = GcsOptions(endpoint_url="http://127.0.0.1:4443")
    assert is_anonymous(local)
    assert is_anonymous(GcsOptions(endpoint_url="http://localhost:4443"))
    for options in (
        GcsOptions(),
        GcsOptions(endpoint_url="https://127.0.0.1:4443"),
        GcsOptions(endpoint_url="http://storage.example.com"),
        GcsOptions(endpoint_url=local.endpoint_url, credentials_file="/key.json"),
    ):
        assert not is_anonymous(options)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "emulator:4443")
    assert is_anonymous(GcsOptions())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")
    assert not is_anonymous(GcsOptions())
    assert not is_anonymous(local)


def test_libraries_reach_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs and Polars get the server and the path of the credentials, never a key."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    assert open_storage("gs://lake").for_libraries() == {}
    named = GcsOptions(endpoint_url="https://gcs.example.com", credentials_file="/key.json")
    assert open_storage("gs://lake", named).for_libraries() == {
        "google_base_url": "https://gcs.example.com",
        "google_application_credentials": "/key.json",
    }


def test_without_the_package() -> None:
    """Without Google's library the error says what to install; other lakes never load it."""
    script = (
        "import sys\n"
        "from bridge.errors import SettingsError\n"
        "from bridge.lake.storage import open_storage\n"
        "open_storage('/lake')\n"
        "assert not any(name.startswith('google') for name in sys.modules)\n"
        "sys.modules['google.auth'] = None\n"
        "try:\n    open_storage('gs://lake')\n"
        "except SettingsError as error:\n    print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == 'pip install "singer-bridge[gcs]"\n'


def test_the_bucket_has_a_name() -> None:
    """gs:// alone is refused; a slash at the end counts for nothing."""
    with pytest.raises(SettingsError, match="no name"):
        open_storage("gs:///team")
    assert open_storage("gs://lake/team/").uri == "gs://lake/team"
