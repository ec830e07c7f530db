"""Debian's PostgreSQL, which has wal2json, as a server of our own on loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .realtaps import Project, free_port, installed

_PACKAGES = ["postgresql", "postgresql-15-wal2json"]
_SETTINGS = """
listen_addresses = '127.0.0.1'
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
fsync = off
"""


@dataclass(frozen=True)
class PostgreSql:
    """A running server: reached over TCP with a password, and by its owner over the socket without one."""

    folder: Path
    port: int
    programs: Path

    @property
    def environ(self) -> dict[str, str]:
        """What libpq reads, for the owner of everything."""
        login = {"PGUSER": "postgres", "PGPASSWORD": "owner-of-it-all", "PGDATABASE": "postgres"}
        return login | {"PGHOST": "127.0.0.1", "PGPORT": str(self.port)}

    def sql(self, text: str) -> list[list[str]]:
        """Run statements as the owner of everything; rows come back as text."""
        argv = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--field-separator=\t", "--quiet"]
        argv += ["-v", "ON_ERROR_STOP=1"]
        environ = os.environ | self.environ
        # From stdin each statement is a transaction of its own, as those on slots have to be.
        done = subprocess.run(argv, env=environ, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def restart(self) -> None:
        """Stop at once, as in a crash, and start again: clients lose their connections."""
        _as_owner([*self._control, f"--log={self.folder}/log", "--mode=immediate", "restart"])

    def stop(self) -> None:
        """Stop at once."""
        _as_owner([*self._control, "--mode=immediate", "stop"])

    def start(self) -> None:
        """Returns when it answers."""
        _as_owner([*self._control, f"--log={self.folder}/log", "start"])

    @property
    def _control(self) -> list[str]:
        return [str(self.programs / "pg_ctl"), f"--pgdata={self.folder}/data", "--wait", "--silent"]

    def trust(self, *plugins: str) -> None:
        """Let slots use these plugins, too, if the server has a list of those that they may use."""
        if self.sql("select 1 from pg_settings where name = 'output_plugin_libraries'"):
            names = ", ".join(("pgoutput", "test_decoding", *plugins))
            self.sql(
                f"alter system set output_plugin_libraries = {names}; select pg_reload_conf(); select pg_sleep(0.2)"
            )


@contextmanager
def postgresql() -> Iterator[PostgreSql]:
    """Run an empty server for the block. Skips where there is none with wal2json and none can be installed."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="bridge-postgresql-") as name, free_port() as port:
        folder = Path(name)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        (folder / "password").write_text("owner-of-it-all")
        (folder / "password").chmod(0o644)
        data = folder / "data"
        made = ["--auth=scram-sha-256", "--username=postgres", f"--pwfile={folder}/password", "--encoding=UTF8"]
        _as_owner([str(programs / "initdb"), f"--pgdata={data}", "--no-locale", *made])
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"{_SETTINGS}port = {port}\nunix_socket_directories = '{folder}'\n")
        server = PostgreSql(folder, port, programs)
        server.start()
        server.trust("wal2json")
        try:
            yield server
        finally:
            server.stop()


def reader(tap: str, server: PostgreSql, folder: Path) -> Project:
    """A project whose tap, by its package, reads all tables of the schema `public`."""
    config = {"host": "127.0.0.1", "port": server.port, "user": "postgres", "password": server.environ["PGPASSWORD"]}
    if tap.startswith("meltanolabs"):
        config |= {"database": "postgres", "filter_schemas": ["public"]}
    else:
        config |= {"dbname": "postgres", "filter_schemas": "public"}
    return Project(folder, installed(tap, "tap-postgres"), config)


def _as_owner(argv: list[str]) -> None:
    command = ["runuser", "-u", "postgres", "--", *argv] if os.geteuid() == 0 else argv
    # Not to a pipe: the server that `pg_ctl` starts would keep it open.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, cwd="/")


def _programs() -> Path:
    """Return the folder of the server's programs, of the newest version that has wal2json."""
    if not (found := _installed()):
        try:
            for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES]):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"there is no PostgreSQL with wal2json, and apt-get cannot install it: {error}")
        found = _installed()
    if not found or not shutil.which("psql"):
        pytest.skip("there is no PostgreSQL with wal2json")
    return found[-1]


def _installed() -> list[Path]:
    with_plugin = Path("/usr/lib/postgresql").glob("*/lib/wal2json.so")
    return sorted(plugin.parent.parent / "bin" for plugin in with_plugin)
