"""The pages on real sources are true: what they tell to type is typed here, on real servers, with taps from PyPI."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.test_docs import ROOT, type_page

from .postgresql import postgresql
from .realtaps import BINLOG, free_port, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
DOCS = ROOT / "docs"


def test_readme(tmp_path: Path) -> None:
    """README's five steps, with their real tap; `make test` types the rest of it."""
    type_page(ROOT / "README.md", tmp_path, has={"PyPI"})


def test_postgres(tmp_path: Path) -> None:
    """docs/postgres.md, from the first command to the last."""
    with postgresql() as server:
        type_page(DOCS / "postgres.md", tmp_path, server.environ)


def test_mysql(tmp_path: Path) -> None:
    """docs/mysql.md, on MariaDB."""
    with mariadb(*BINLOG) as server:
        (server.folder / "my.cnf").write_text(f"[client]\nsocket={server.folder}/socket\nuser=root\n")
        environ = {"MYSQL_HOME": str(server.folder), "MYSQL_TCP_PORT": str(server.port)}
        type_page(DOCS / "mysql.md", tmp_path, environ)


def test_rest_api(tmp_path: Path) -> None:
    """docs/rest-api.md, with the API of the page itself."""
    with free_port() as port:
        try:
            type_page(DOCS / "rest-api.md", tmp_path, {"API_PORT": str(port)})
        finally:
            pid = tmp_path / "api.pid"
            with suppress(ProcessLookupError, FileNotFoundError):  # the page's last command ends it
                os.kill(int(pid.read_text()), signal.SIGTERM)
