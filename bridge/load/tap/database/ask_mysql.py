"""Asks a MySQL or a MariaDB. A program for the Python of the tap, which has the tap's driver.

The first line of stdin is the tap's settings, as JSON. Each further line is a question: `queries`, each a statement and
its values; `each`, how many seconds one may take; `whole`, after how many seconds no other one is begun. A line of
stdout answers it: `answers`, rows or null for each query, or `error` if there is no connection. It ends with its stdin.
"""

from __future__ import annotations

import importlib
import json
import ssl
import sys
import time
from contextlib import suppress
from typing import Any

_CONNECT = 10
"""Seconds for connecting."""
_READ = 90
"""Seconds of silence after which the connection is lost. Whoever asks has a limit of its own."""


def connected(config: dict[str, Any]) -> Any:
    """Connect as pipelinewise-tap-mysql does; certificates of its settings are texts, and are not looked at here."""
    driver = importlib.import_module("pymysql")
    login = {name: config.get(name) for name in ("host", "user", "password")}
    limits = {"connect_timeout": _CONNECT, "read_timeout": _READ}
    certified = all(config.get(name) for name in ("ssl_ca", "ssl_cert", "ssl_key"))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    secure = {"ssl": context} if certified or str(config.get("ssl")).lower() == "true" else {}
    # In one transaction, a later question would see the tables as they were at the first.
    return driver.connect(**login, port=int(config.get("port") or 3306), autocommit=True, **limits, **secure)


def rows(connection: Any, queries: list[list[Any]], each: float, whole: float) -> list[Any]:
    """The rows of each query; None where the server gave none in time."""
    end = time.monotonic() + whole
    settings: dict[str, Any] = {"time_zone": "'+0:00'", "information_schema_stats_expiry": 0}
    settings |= {"max_statement_time": each, "max_execution_time": int(1000 * each)}  # MariaDB's, and MySQL's
    answers: list[Any] = []
    with connection.cursor() as cursor:
        for name, value in settings.items():
            with suppress(Exception):  # neither server has all of them
                cursor.execute(f"set session {name} = {value}")
        for sql, values in queries:
            answers.append(None)
            if time.monotonic() < end:
                try:
                    cursor.execute(sql, values or ())
                    answers[-1] = cursor.fetchall()
                except Exception:
                    if not connection.open:
                        raise
    return answers


def main() -> None:
    """Answer what stdin asks."""
    config: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    connection: Any = None
    for line in sys.stdin.buffer:
        try:
            connection = connection or connected(config)
            result: dict[str, Any] = {"answers": rows(connection, **json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the driver's own, whichever it is
            result = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(result, default=str) + "\n")
        sys.stdout.flush()
    if connection:
        with suppress(Exception):
            connection.close()


if __name__ == "__main__":
    main()
