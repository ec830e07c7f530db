"""Sources of files and of web services on loopback, for real taps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.debian import debian_program

from .realtaps import free_port

Answer = tuple[int, Any, str]
"""The status, the body, and the path of the next page."""


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Answer]) -> Iterator[str]:
    """Serve JSON for the block; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, body, following = answer(parts.path, dict(parse_qsl(parts.query)))
            self.send_response(status)
            if following:
                self.send_header("Link", f'<http://{self.headers["Host"]}{following}>; rel="next"')
            for name, value in (("Limit", 5000), ("Remaining", 4999), ("Used", 1), ("Reset", int(time.time()) + 3600)):
                self.send_header(f"X-RateLimit-{name}", str(value))
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def people_api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """250 people in pages of 100, one of them twice, one with a field of its own; the second page fails once."""
    people = [{"id": i, "name": f"p {i}", "address": {"city": "Delft"}} for i in range(1, 251)]
    people[119]["name"] = 120
    people[159]["late"] = 1
    sent, failed = people[:101] + people[99:], []

    def answer(_: str, query: dict[str, str]) -> Answer:
        offset = int(query.get("offset", 0))
        if offset and not failed:
            failed.append(offset)
            return 500, b"{}", ""
        page = {"offset": offset, "limit": 100, "total": len(sent)}
        return 200, {"data": sent[offset : offset + 100], "pagination": page}, ""

    with serving(answer) as url:
        yield url, people


@contextmanager
def github() -> Iterator[tuple[str, Callable[[int], None]]]:
    """A repository with 150 pull requests and a review of each, the latest first; the function changes one of them."""
    times = {number: f"2024-01-01T{number // 60:02}:{number % 60:02}:00Z" for number in range(1, 151)}

    def answer(path: str, query: dict[str, str]) -> Answer:
        page = int(query.get("page", 1))
        if path == "/orgs/o/repos":
            repo = {"id": 7, "name": "r", "full_name": "o/r", "owner": {"login": "o"}, "has_pull_requests": True}
            return 200, [repo | {"updated_at": "2024-01-01T00:00:00Z"}] if page == 1 else [], ""
        if path == "/repos/o/r/pulls":
            latest = sorted(times, key=lambda number: times[number], reverse=True)[page * 100 - 100 : page * 100]
            found = [
                {"id": n, "number": n, "updated_at": times[n], "created_at": times[n], "title": "t", "body": None}
                for n in latest
            ]
            return (
                200,
                found,
                f"{path}?{'&'.join(f'{k}={v}' for k, v in query.items() if k != 'page')}&page=2" * (page < 2),
            )
        if match := re.fullmatch(r"/repos/o/r/pulls/(\d+)/reviews", path):
            number = int(match[1])
            return 200, [{"id": 1000 + number, "body": f"review of {number}, at {times[number]}"}], ""
        return 404, {}, ""

    with serving(answer) as url:
        yield url, lambda number: times.update({number: "2024-02-01T00:00:00Z"})


@contextmanager
def sftp_server(root: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """OpenSSH with keys of its own; yields a tap's settings, and the folder of the files."""
    program, folder = debian_program("sshd", "openssh-server"), root / "drop"
    folder.mkdir()
    for name, kind in (("host", "ed25519"), ("user", "rsa")):
        command = ["ssh-keygen", "-q", "-t", kind, "-m", "PEM", "-N", "", "-f", str(root / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    Path("/run/sshd").mkdir(exist_ok=True)
    with free_port() as port:
        lines = [f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {root}/host", "PidFile none", "UsePAM no"]
        lines += [f"AuthorizedKeysFile {root}/user.pub", "StrictModes no", "Subsystem sftp internal-sftp"]
        (root / "sshd_config").write_text("\n".join(lines))
    with (root / "sshd.log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(root / "sshd_config")], stderr=log)
    try:
        until = time.monotonic() + 60
        while b"listening" not in (root / "sshd.log").read_bytes():
            assert time.monotonic() < until, (root / "sshd.log").read_text()
            time.sleep(0.1)
        user = {"username": os.environ.get("USER") or "root", "private_key_file": str(root / "user")}
        yield {"host": "127.0.0.1", "port": port, **user}, folder
    finally:
        server.terminate()
        server.wait(60)


def dynamodb_endpoints(root: Path, url: str) -> dict[str, str]:
    """The variables with which the old botocore of tap-dynamodb finds our server: it knows no AWS_ENDPOINT_URL."""
    place = {"hostname": url.removeprefix("http://"), "protocols": ["http"], "signatureVersions": ["v4"]}
    signed = place | {"credentialScope": {"service": "dynamodb", "region": "us-east-1"}}
    services = {"dynamodb": signed, "streams.dynamodb": signed, "sts": place}
    partition = {
        "partition": "aws",
        "dnsSuffix": "amazonaws.com",
        "regionRegex": r"^us-\w+-\d+$",
        "defaults": {"hostname": "{service}.{region}.{dnsSuffix}"},
        "regions": {"us-east-1": {"description": ""}},
        "services": {name: {"endpoints": {"us-east-1": one}} for name, one in services.items()},
    }
    (root / "endpoints.json").write_text(json.dumps({"version": 3, "partitions": [partition]}))
    return {"AWS_DATA_PATH": str(root), "AWS_STS_REGIONAL_ENDPOINTS": "regional", "HOME": str(root)}
