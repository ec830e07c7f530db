"""An Iceberg REST catalog over real HTTP on loopback: as much of the protocol as commits and readers use.

What it says is parsed and decided by pyiceberg's own models and SQL catalog; it can lose an answer.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote

from pyiceberg import exceptions as told
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableRequest, Table

CLOSED, LATE, PASS = 0, -1, -2
"""Instead of a status: the connection is closed, nothing comes until the server is left, or the request is answered."""
_ERRORS = {
    told.NoSuchTableError: (404, "NoSuchTableException"),
    told.NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    told.CommitFailedException: (409, "CommitFailedException"),
}


class RestCatalog:
    """The server. `lose` answers of commits are not given, though they are done. `asked` are the commits' requests.

    `faults` are what the next requests get, and nothing is done of them; `loss` is what comes instead of a lost answer.
    One that is `broken` does none and says so, as a server with a fault does.
    One that `hangs` answers only what its settings are, until it is left; `hung`: it was asked for more.
    """

    def __init__(self, folder: Path) -> None:
        self._sql = SqlCatalog("behind", uri=f"sqlite:///{folder}/rest.db")
        self.lose, self.loss = 0, 504
        self.faults: list[int] = []
        self.broken = False
        self.asked: list[Any] = []
        self.hangs, self.hung, self._left = False, threading.Event(), threading.Event()

    def __enter__(self) -> RestCatalog:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, said: Any) -> None:
                if server.hangs and "config" not in self.path:
                    server.hung.set()
                    server._left.wait()
                    self.close_connection = True
                    return
                status, body = server._done([unquote(part) for part in self.path.split("/")[2:]], said)
                if status == LATE:
                    server._left.wait()
                if status in (CLOSED, LATE):
                    self.close_connection = True
                    return
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._sql.close()

    def _done(self, path: list[str], said: Any) -> tuple[int, Any]:
        if self.faults and (fault := self.faults.pop(0)) != PASS:
            return self._fault(fault)
        try:
            if path == ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            if path == ["namespaces"] and said is None:
                return 200, {"namespaces": [list(one) for one in self._sql.list_namespaces()]}
            if path == ["namespaces"]:
                self._sql.create_namespace(tuple(said["namespace"]))
                return 200, {"namespace": said["namespace"], "properties": {}}
            _, namespace, _, name = path
            table = (*namespace.split("\x1f"), name)
            return 200, self._table(table) if said is None else self._commit(table, said)
        except tuple(_ERRORS) as error:
            code, kind = next(found for type_, found in _ERRORS.items() if isinstance(error, type_))
            return code, {"error": {"message": str(error), "type": kind, "code": code}}
        except RuntimeError as error:
            return 500, {"error": {"message": str(error), "type": "InternalServerError", "code": 500}}
        except ConnectionAbortedError:
            return self._fault(self.loss)

    def _fault(self, status: int) -> tuple[int, Any]:
        return status, {"error": {"message": "not now", "type": "Fault", "code": status}}

    def _table(self, name: tuple[str, ...]) -> Any:
        return self._said(self._sql.load_table(name))

    def _commit(self, name: tuple[str, ...], said: Any) -> Any:
        self.asked.append(said)
        if self.broken:
            raise RuntimeError("the disk is full")
        asked = CommitTableRequest.model_validate(said)
        table = cast(Table, SimpleNamespace(name=lambda: name))
        done = self._sql.commit_table(table, asked.requirements, asked.updates)
        if self.lose:
            self.lose -= 1
            raise ConnectionAbortedError
        return self._said(done)

    def _said(self, table: Any) -> Any:
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}
