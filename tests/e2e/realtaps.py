"""Real taps, each in a venv of its own that is made once on a machine, and the databases that they read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from tests.support.debian import debian_program
from tests.support.shell import Done

BINLOG = ("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--server-id=1")
"""The options with which MariaDB keeps a log that a tap can read."""

_VENVS = Path(__file__).parents[2] / ".singer-bridge" / "real-taps"
_PATIENCE = 60
"""Seconds that a server may take to answer."""


def installed(package: str, command: str, *more: str) -> Path:
    """Return a tap's command; `more` packages beside it. Skips where its package cannot be had."""
    mark = hashlib.sha256("".join((package, *more, sys.version)).encode()).hexdigest()[:8]
    venv = _VENVS / f"{package}-{mark}"
    program = venv / "bin" / command
    if program.exists():
        return program
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    draft = venv.with_name(f"{venv.name}.{os.getpid()}")
    try:
        for arguments in (
            ["venv", "-q", "--relocatable", "-p", sys.executable, str(draft)],
            _install(draft, package, *more),
        ):
            subprocess.run([uv, *arguments], check=True, capture_output=True, text=True, timeout=300)
        draft.rename(venv)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        pytest.skip(f"{package} cannot be installed here: {getattr(error, 'stderr', '') or error}")
    return program


def adbc_tap(folder: Path) -> Path:
    """The command of adbc_tap.py, in this folder: a tap with the Singer SDK that knows Arrow."""
    python = installed("singer-sdk==0.55.0b7", "python", "pyarrow>=25", "adbc-driver-postgresql>=1.13")
    program = folder / "tap-adbc"
    program.write_text(f'#!/bin/sh\nexec {python} {Path(__file__).with_name("adbc_tap.py")} "$@"\n')
    program.chmod(0o755)
    return program


def _install(venv: Path, *packages: str) -> list[str]:
    return ["pip", "install", "-q", "--compile-bytecode", "-p", str(venv / "bin" / "python"), *packages]


@dataclass
class Project:
    """A folder with a bridge.yaml of one pipeline `p`, run by the real command; its tables are read by DuckDB."""

    folder: Path
    tap: Path
    config: dict[str, Any]
    method: str = "FULL_TABLE"
    key: str | None = None

    def set_up(self, **streams: Any) -> None:
        """Write bridge.yaml. `streams` are the keys of all streams."""
        keys = {"replication_method": self.method} | ({"replication_key": self.key} if self.key else {}) | streams
        source = {"tap": str(self.tap), "config": self.config, "select": ["*"]}
        pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": {"*": keys}}
        (self.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))

    def run(self, *arguments: str, **streams: Any) -> Any:
        """Run the pipeline and return what `run --json` says. `streams` are the keys of all streams."""
        self.set_up(**streams)
        done = self.command("run", "p", "--json", *arguments)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def command(self, *arguments: str) -> Done:
        argv = [sys.executable, "-m", "bridge", *arguments]
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def rows(self, stream: str, columns: str, order: str = "id") -> list[tuple[Any, ...]]:
        files = self.folder / "lake" / "p" / stream / "*.parquet"
        query = f"select {columns} from read_parquet('{files}', union_by_name=true) order by {order}"
        with duckdb.connect() as engine:
            engine.execute("set TimeZone='UTC'")
            found: list[tuple[Any, ...]] = engine.execute(query).fetchall()
        return found

    def rejects(self) -> list[dict[str, Any]]:
        return [
            json.loads(line) for line in self.command("rejects", "show", "p", "--json", "-n", "10000").out.splitlines()
        ]


@dataclass(frozen=True)
class MariaDb:
    """A server of our own on loopback."""

    folder: Path
    port: int

    def sql(self, text: str) -> list[list[str | None]]:
        """Run statements as the owner of everything; rows come back as text."""
        argv = ["mariadb", "--no-defaults", f"--socket={self.folder}/socket", "--user=root", "--batch"]
        argv += ["--skip-column-names", "--default-character-set=utf8mb4"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [[None if cell == "NULL" else cell for cell in line.split("\t")] for line in done.stdout.splitlines()]


@contextmanager
def mariadb(*options: str) -> Iterator[MariaDb]:
    """Run an empty server, with these options, for the block. Skips where there is none and none can be installed."""
    server_program = debian_program("mariadbd", "mariadb-server")
    with tempfile.TemporaryDirectory(prefix="bridge-mariadb-") as name, free_port() as port:
        folder = Path(name)
        data = ["--no-defaults", f"--datadir={folder}/data"]
        make = ["mariadb-install-db", *data, "--user=root", "--auth-root-authentication-method=normal"]
        subprocess.run([*make, "--skip-test-db"], check=True, capture_output=True, timeout=120)
        listen = [f"--socket={folder}/socket", f"--port={port}", "--bind-address=127.0.0.1"]
        with (folder / "log").open("wb") as log:
            command = [server_program, *data, "--user=root", *listen, f"--pid-file={folder}/pid", *options]
            server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield _answering(MariaDb(folder, port))
        finally:
            server.terminate()
            server.wait(60)


@contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    yield port


def _answering(server: MariaDb) -> MariaDb:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            server.sql("select 1")
        except AssertionError:
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.2)
        else:
            return server
