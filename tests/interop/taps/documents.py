"""A server of MongoDB's protocol on loopback, from Maven, and a client of it that is not the tap's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.realtaps import installed
from tests.interop.loopback import free_port, started, wait_for
from tests.interop.maven import java, maven_files

VERSION = "1.47.0"
"""Of mongo-java-server. MongoDB itself is in no registry that `make interop` reaches."""
SINGER, WISE, MELTANO = "tap-mongodb==3.3.0", "pipelinewise-tap-mongodb==1.5.0", "meltanolabs-tap-mongodb==0.4.1"
TAPS = ", ".join(one.replace("==", " ") for one in (SINGER, WISE, MELTANO))
_HERE = Path(__file__).parent
_USER, _PASSWORD = "reader", "correct horse"


@dataclass(frozen=True)
class Documents:
    """A server of our own. Its one user may read everything."""

    port: int

    @property
    def login(self) -> dict[str, str]:
        """The settings by which singer-io's and pipelinewise's tap log in."""
        return {"host": "127.0.0.1", "port": str(self.port), "user": _USER, "password": _PASSWORD}

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def ask(self, *lines: str) -> list[Any]:
        """The value of each expression of `shop`, its database, as extended JSON."""
        argv = [installed("pymongo==4.10.1", "python"), _HERE / "document_client.py", self.url]
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def answers(self) -> bool:
        try:
            self.ask("shop.command('ping') and 1")
        except AssertionError:
            return False
        return True


@contextmanager
def documents() -> Iterator[Documents]:
    """Run an empty server for the block."""
    name = f"mongo-java-server-{VERSION}"
    jars = maven_files(name, f"de.bwaldvogel:mongo-java-server:{VERSION}")
    port = free_port()
    program = [java(17) / "bin/java", "-Xmx512m", "-cp", f"{jars}/*", _HERE / "DocumentServer.java"]
    process = started([*program, str(port), _USER, _PASSWORD], os.environ)
    server = Documents(port)
    try:
        wait_for(process, name, server.answers)
        yield server
    finally:
        process.terminate()
        process.wait(60)
