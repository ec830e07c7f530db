"""What a MySQL or a MariaDB says of its binary log. A program for the Python of the tap, which has the tap's driver.

Reads one JSON object from stdin, `config` of the tap and `positions` in the log, and writes one to stdout: `server`,
who it is; `sizes` of the log's files; `gtids`, of MariaDB, which transaction stands before each position; or `error`.
Asked with `queries` instead, each a statement and its values, it writes their `answers`: rows, or null for one that
failed or took more than `each` seconds, and for those that were left after the `whole` seconds.
"""

from __future__ import annotations

import importlib
import json
import ssl
import sys
import time
from contextlib import suppress
from typing import Any

_SECONDS = 10


def connected(config: dict[str, Any]) -> Any:
    """Connect as pipelinewise-tap-mysql does; certificates of its settings are texts, and are not looked at here."""
    driver = importlib.import_module("pymysql")
    login = {name: config.get(name) for name in ("host", "user", "password")}
    limits = {"connect_timeout": _SECONDS, "read_timeout": 3 * _SECONDS}
    certified = all(config.get(name) for name in ("ssl_ca", "ssl_cert", "ssl_key"))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    secure = {"ssl": context} if certified or str(config.get("ssl")).lower() == "true" else {}
    return driver.connect(**login, port=int(config.get("port") or 3306), **limits, **secure)


def answer(config: dict[str, Any], positions: list[list[Any]]) -> dict[str, Any]:
    """Ask the server."""
    connection = connected(config)
    with connection.cursor() as cursor:

        def row(sql: str, *values: Any) -> Any:
            cursor.execute(sql, values)
            return cursor.fetchone()

        is_mariadb = "mariadb" in str(row("select version()")[0]).lower()
        who = "@@global.server_id, @@global.gtid_domain_id" if is_mariadb else "@@global.server_uuid"
        server = " ".join(map(str, row(f"select {who}")))
        cursor.execute("show binary logs")
        sizes = {str(name): int(size) for name, size, *_ in cursor.fetchall()}
        existing = [(file, place) for file, place in positions if place <= sizes.get(file, -1)]
        gtids = [[*each, row("select binlog_gtid_pos(%s, %s)", *each)[0]] for each in existing] if is_mariadb else []
    return {"server": f"{'mariadb' if is_mariadb else 'mysql'} {server}", "sizes": sizes, "gtids": gtids}


def rows(config: dict[str, Any], queries: list[list[Any]], each: int, whole: int) -> list[Any]:
    """The rows of each query; None where the server gave none in time."""
    connection, end = connected(config), time.monotonic() + whole
    settings: dict[str, Any] = {"time_zone": "'+0:00'", "information_schema_stats_expiry": 0}
    settings |= {"max_statement_time": each, "max_execution_time": 1000 * each}  # MariaDB's, and MySQL's
    answers: list[Any] = []
    with connection.cursor() as cursor:
        for name, value in settings.items():
            with suppress(Exception):  # neither server has all of them
                cursor.execute(f"set session {name} = {value}")
        for sql, values in queries:
            answers.append(None)
            if time.monotonic() < end:
                with suppress(Exception):
                    cursor.execute(sql, values or ())
                    answers[-1] = cursor.fetchall()
    return answers


def main() -> None:
    """Answer what stdin asks."""
    asked = json.load(sys.stdin)
    try:
        if "queries" in asked:
            result: dict[str, Any] = {"answers": rows(asked["config"], asked["queries"], asked["each"], asked["whole"])}
        else:
            result = answer(asked["config"], asked["positions"])
    except Exception as error:  # noqa: BLE001 - the driver's own, whichever it is
        result = {"error": f"{type(error).__name__}: {error}"}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
