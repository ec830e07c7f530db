"""A PostgreSQL of our own with logical decoding (Debian's, with wal2json), and a load that changes its tables."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

import psycopg
import pytest

TABLES = ("a", "b")


@dataclass
class WalServer:
    """A server on loopback that can be stopped as a power cut would."""

    folder: Path
    programs: Path
    port: int

    def connect(self, **given: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", **given)

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True) as connection:
            cursor = connection.execute(text, values)
            return list(cursor.fetchall()) if cursor.description else []

    def slots(self) -> dict[str, int]:
        """The slots and how far each is confirmed, as a number."""
        sql = "select slot_name, (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots"
        return {str(name): int(at) for name, at in self.sql(sql)}

    def trust_wal2json(self) -> None:
        """Let slots use it, if this version of the server has a list of the plugins that they may use."""
        if self.sql("select 1 from pg_settings where name = 'output_plugin_libraries'"):
            self.sql("alter system set output_plugin_libraries = pgoutput, test_decoding, wal2json")
            self.sql("select pg_reload_conf(), pg_sleep(0.2)")

    def start(self) -> None:
        self._control("start", "-l", str(self.folder / "log"), "-w")

    def stop(self, mode: str) -> None:
        """Stop it: `immediate` as a power cut, `fast` in good order."""
        self._control("stop", "-m", mode, "-w")

    def save(self, name: str) -> None:
        """Copy its files, as a snapshot of its disk would."""
        self.stop("fast")
        as_user("postgres", ["cp", "-a", str(self.folder / "data"), str(self.folder / name)])
        self.start()

    def set_back(self, name: str, *, promoted: bool) -> None:
        """Go on from files that were saved; `promoted`: as a standby that had come so far, and became the primary."""
        self.stop("immediate")
        shutil.rmtree(self.folder / "data")
        (self.folder / name).rename(self.folder / "data")
        if promoted:
            (self.folder / "data" / "standby.signal").touch()
        self.start()
        if promoted:
            self._control("promote", "-w")

    def pad(self) -> None:
        """Write some megabytes of log that is of no table."""
        self.sql("select pg_logical_emit_message(false, 'pad', repeat('x', 1000000)) from generate_series(1, 8)")

    def _control(self, *arguments: str) -> None:
        as_user("postgres", [str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), *arguments])


def as_user(user: str, argv: list[str]) -> None:
    """Run a server's program; it refuses to be run by root."""
    prefix = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, *argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()


@contextmanager
def wal_server(**settings: str) -> Iterator[WalServer]:
    """Run an empty server for the block. Skips where there is none and apt-get has none."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="bridge-wal-") as name, socket.socket() as one:
        folder = Path(name)
        one.bind(("127.0.0.1", 0))
        server = WalServer(folder, programs, one.getsockname()[1])
        one.close()
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        as_user("postgres", [str(programs / "initdb"), "-D", f"{folder}/data", "-U", "postgres", "-A", "trust"])
        said = {"port": str(server.port), "listen_addresses": "'127.0.0.1'", "unix_socket_directories": f"'{folder}'"}
        said |= {"wal_level": "logical", "fsync": "off", **settings}
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = {value}\n" for key, value in said.items())
        server.start()
        try:
            server.trust_wal2json()
            yield server
        finally:
            with suppress(AssertionError):
                server.stop("immediate")


def _programs() -> Path:
    def found() -> list[str]:
        return [at for at in glob("/usr/lib/postgresql/*/bin") if glob(f"{at}/../lib/wal2json.so")]

    if not found():
        version = max((Path(at).parent.name for at in glob("/usr/lib/postgresql/*/bin")), default="15")
        install = ["apt-get", "install", "-y", "--no-install-recommends", f"postgresql-{version}"]
        try:
            for command in (["apt-get", "update"], [*install, f"postgresql-{version}-wal2json"]):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"there is no PostgreSQL with wal2json, and apt-get cannot install it: {error}")
    return Path(max(found()))


@dataclass
class Load:
    """Changes the tables until it is left: rows, transactions of many rows, and some that stay open for long."""

    server: WalServer
    seed: int
    pause: float = 0.05
    changes: int = 0
    _left: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Load:
        for number, work in enumerate((self._short, self._long)):
            self._threads.append(threading.Thread(target=self._until_left, args=(work, self.seed * 2 + number)))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for thread in self._threads:
            thread.join()

    def _until_left(self, work: Any, seed: int) -> None:
        chance = random.Random(seed)
        while not self._left.is_set():
            with suppress(psycopg.Error), self.server.connect() as connection:
                connection.execute("set lock_timeout = '500ms'")
                while not self._left.is_set():
                    with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                        work(connection, chance)
                        connection.commit()
                    connection.rollback()
            self._left.wait(0.2)

    def _short(self, connection: Any, chance: random.Random) -> None:
        for _ in range(chance.choice([1, 1, 1, 40])):
            self._change(connection, chance)
        self._left.wait(self.pause)

    def _long(self, connection: Any, chance: random.Random) -> None:
        """A transaction whose changes stand in the log long before its commit; some are given up."""
        for _ in range(chance.randrange(1, 6)):
            self._change(connection, chance)
            self._left.wait(chance.random() * 4)
        if chance.random() < 0.2:
            connection.rollback()

    def _change(self, connection: Any, chance: random.Random) -> None:
        table, value, key = chance.choice(TABLES), f"v{time.time_ns()}", chance.randrange(1, 2000)
        kind = chance.random()
        if kind < 0.6:
            connection.execute(f"insert into {table} (v, n) values (%s, %s)", [value, key])
        elif kind < 0.85:
            sql = f"update {table} set v = %s, n = n + 1 where id = (select id from {table} where n > %s limit 1)"
            connection.execute(sql, [value, key])
        else:
            connection.execute(f"delete from {table} where id = (select id from {table} where n > %s limit 1)", [key])
        self.changes += 1
