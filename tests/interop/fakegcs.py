"""fake-gcs-server, built from its source by Go, on loopback: Google Cloud Storage's JSON API, by others than us."""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyarrow.fs import GcsFileSystem

from bridge.lake.storage import open_storage
from tests.crash.lakes import Bucket
from tests.interop.gcsproxy import Fault, Proxy, wait_until
from tests.interop.goprogram import go_program
from tests.interop.loopback import free_port
from tests.support.gcs import client_of

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"


class FakeGcs:
    """The store behind the proxy, from the side of a test. `environ` is what a program needs to reach it.

    This process's environment names it, too, until it ends; nothing else of Google's is left in it.
    """

    def __enter__(self) -> FakeGcs:
        program = go_program(MODULE, VERSION)
        self._proxy, self._buckets = Proxy(), set[str]()
        self._proxy.store = free_port()
        self.endpoint = f"http://127.0.0.1:{self._proxy.port}"
        self.environ = {"STORAGE_EMULATOR_HOST": self.endpoint}
        self._folder = tempfile.TemporaryDirectory(prefix="fake-gcs-")
        where = ["-host", "127.0.0.1", "-port", str(self._proxy.store), "-public-host", f"127.0.0.1:{self._proxy.port}"]
        self._process = subprocess.Popen(
            [program, "-scheme", "http", "-backend", "memory", "-log-level", "error", *where],
            env={"PATH": os.environ["PATH"], "HOME": self._folder.name},
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._proxy.start()
        self._before = {name: os.environ.pop(name) for name in list(os.environ) if _is_google(name)}
        os.environ.update(self.environ)
        wait_until(self._is_up, "fake-gcs-server does not answer")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.environ:
            del os.environ[name]
        os.environ.update(self._before)
        self._process.terminate()
        self._process.wait(timeout=30)
        self._proxy.stop()
        self._folder.cleanup()

    def _is_up(self) -> bool:
        assert self._process.poll() is None, "fake-gcs-server did not start"
        try:
            with urllib.request.urlopen(f"{self.endpoint}/_internal/healthcheck", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def client(self) -> Any:
        """A plain client, to look at the store from outside."""
        return client_of(self.endpoint)

    @property
    def without_proxy(self) -> str:
        """The address of fake-gcs-server itself, which ignores conditions of copies."""
        return f"http://127.0.0.1:{self._proxy.store}"

    def bucket(self, name: str) -> str:
        """Create a bucket if there is none of this name."""
        if name not in self._buckets:
            self.client().create_bucket(name)
            self._buckets.add(name)
        return name

    def storage(self, uri: str) -> Any:
        """Open a bucket that is created if it is missing. An address of S3's tests means one of this store."""
        uri = f"gs://{uri.partition('://')[2]}"
        self.bucket(uri.removeprefix("gs://").partition("/")[0])
        return open_storage(uri)

    def fault(self, action: str, match: str = "", **rule: Any) -> None:
        """Misbehave from now on: reset, late, hold or error, as `S3Server.fault` says."""
        self._proxy.fault(Fault(action, match, **rule))

    def habit(self, second_complete: str) -> None:
        """Nothing: no file is published by completing an upload."""

    def clear(self) -> None:
        """Behave again, let go what was held, and forget the log."""
        self._proxy.release(forget=True)

    def release(self) -> None:
        """Let go what was held, and inject no more faults."""
        self._proxy.release()

    def held(self) -> int:
        """How many requests are being held."""
        return self._proxy.held()

    def wait_for_held(self, count: int = 1) -> None:
        """Wait until so many requests are being held; 0: until all that were late are done."""
        wait_until(lambda: self._proxy.held() == count, f"{self._proxy.log()}")

    def log(self) -> list[str]:
        """Each request since `clear`, as `METHOD /path?query`."""
        return self._proxy.log()


def _is_google(name: str) -> bool:
    return name.startswith(("GOOGLE_", "CLOUDSDK_", "STORAGE_EMULATOR_HOST"))


class GcsBucket(Bucket):
    """A lake in a bucket of the emulator."""

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        self.uri, self.environ = uri, dict(environ)
        where = urlsplit(uri)
        self.bucket, self.prefix = where.netloc, where.path.strip("/")
        self.client = client_of(environ["STORAGE_EMULATOR_HOST"])

    def read(self, key: str) -> bytes | None:
        from google.cloud.exceptions import NotFound

        try:
            return bytes(self.client.bucket(self.bucket).blob(self._key(key)).download_as_bytes())
        except NotFound:
            return None

    def files(self, prefix: str) -> dict[str, int]:
        top = f"{self._key(prefix)}/".lstrip("/") if prefix else f"{self.prefix}/".lstrip("/")
        return {blob.name[len(top) :]: blob.size for blob in self.client.list_blobs(self.bucket, prefix=top)}

    def uploads(self, prefix: str) -> list[str]:
        return []  # nobody can list them

    def filesystem(self) -> Any:
        scheme, endpoint = self.environ["STORAGE_EMULATOR_HOST"].split("://")
        return GcsFileSystem(anonymous=True, endpoint_override=endpoint, scheme=scheme)

    def close(self) -> None:
        """Nothing: the connections are shared."""
