"""MinIO, built from its source by Go, on loopback: a store that speaks S3 and is nobody's simulation."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import urllib.request

from tests.interop.goprogram import go_program
from tests.support.s3server import S3Server

MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


class MinIO(S3Server):
    """The store, from the side of a test, as `S3Server`; no faults can be injected."""

    def __enter__(self) -> MinIO:
        program = go_program(MODULE, VERSION)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environ = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "very-secret-key",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        self._folder = tempfile.TemporaryDirectory(prefix="minio-")
        keys = {"MINIO_ROOT_USER": "testing", "MINIO_ROOT_PASSWORD": "very-secret-key", "HOME": self._folder.name}
        self._process = subprocess.Popen(
            [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", f"{self._folder.name}/data"],
            env=os.environ | keys,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self._set(self.environ)
        deadline = time.monotonic() + 60
        while not self._is_up():
            assert self._process.poll() is None, "MinIO did not start"
            assert time.monotonic() < deadline, "MinIO does not answer"
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._before)
        self._process.terminate()
        self._process.wait(timeout=30)
        self._folder.cleanup()

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/minio/health/live", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
