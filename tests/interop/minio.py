"""MinIO, built from its source by Go, on loopback: a store that speaks S3 and is nobody's simulation."""

from __future__ import annotations

import os
import tempfile
import urllib.request

from tests.interop.goprogram import go_program
from tests.interop.loopback import free_port, started, wait_for
from tests.support.s3server import S3Server

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


class MinIO(S3Server):
    """The store, from the side of a test, as `S3Server`; no faults can be injected."""

    def __enter__(self) -> MinIO:
        program = go_program(MODULE, VERSION)
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="minio-")
        keys = {"MINIO_ROOT_USER": "testing", "MINIO_ROOT_PASSWORD": "very-secret-key", "HOME": self._folder.name}
        command = [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", f"{self._folder.name}/data"]
        self._server = started(command, os.environ | keys)
        self._enter_environ()
        wait_for(self._server, "MinIO", self._is_up)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._before)
        self._server.terminate()
        self._server.wait(timeout=30)
        self._folder.cleanup()

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
