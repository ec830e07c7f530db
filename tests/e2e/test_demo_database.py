"""The demo's PostgreSQL: real server, real flights, and nothing left when it is over."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.operate.demo import flights
from bridge.operate.demo.database import private_postgres

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes as Linux lets it")
ENDS_WITHIN_SECONDS = 10
OWNER = """
import sys
from pathlib import Path
from bridge.operate.demo.database import private_postgres
with private_postgres(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside pytest's own, which each pytest session closes to other users, the server's too."""
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder:
        yield Path(folder)


def _ended(pid_fd: int) -> bool:
    """Wait for the process behind a pidfd, which becomes readable when it ends, reaped or not."""
    readable, _, _ = select.select([pid_fd], [], [], ENDS_WITHIN_SECONDS)
    os.close(pid_fd)
    return bool(readable)


def test_server_lives_for_the_block(place: Path) -> None:
    """Inside the block the server answers on its socket; after it neither process nor file is left."""
    data = place / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("half-written by a demo that was killed")
    with private_postgres(data) as server:
        watched = os.pidfd_open(server.pid)
        with psycopg.connect(server.conninfo("postgres")) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    assert _ended(watched)
    assert not data.exists()


def test_server_stops_when_the_block_fails(place: Path) -> None:
    """An error in the block, Ctrl-C included, passes through and takes the server with it."""
    with pytest.raises(KeyboardInterrupt), private_postgres(place / "postgres") as server:
        watched = os.pidfd_open(server.pid)
        raise KeyboardInterrupt
    assert _ended(watched)


def test_folder_too_deep_for_a_socket(place: Path) -> None:
    """A path longer than a unix socket's name may be is no hindrance."""
    with private_postgres(place / ("deep" * 30) / "postgres") as server:
        assert len(str(server.socket_folder)) < 100
        with psycopg.connect(server.conninfo("postgres")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_folders_keep_their_modes(place: Path) -> None:
    """A folder that only its owner may enter is closed again afterwards, also for root, whose server is another's."""
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with private_postgres(closed / "postgres"):
        pass
    assert closed.stat().st_mode & 0o777 == 0o700


def test_killed_owner_leaves_no_server(place: Path) -> None:
    """SIGKILL of the process that started it ends the server within seconds."""
    command = [sys.executable, "-c", OWNER, str(place / "postgres")]
    environ = {**os.environ, "TMPDIR": str(place)}  # what SIGKILL leaves behind in it goes with the test
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as owner:
        assert owner.stdout is not None
        watched = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    assert _ended(watched)


def test_a_year_of_flights(place: Path) -> None:
    """The year is complete, what changes is what is said to change, and the reader may read but not write."""
    with private_postgres(place / "postgres") as server:
        url = flights.create(server)
        loaded = {"flights": 336_776, "airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115}
        assert flights.count(server) == loaded
        before = flights.punctuality(server)
        assert sum(airline.flights for airline in before) == 336_776

        with psycopg.connect(url) as reader:
            distinct = reader.execute("SELECT count(DISTINCT updated_at), current_setting('timezone') FROM flights")
            assert distinct.fetchone() == (336_776, "UTC")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute("DELETE FROM flights")

        assert flights.change(server) == flights.ChangedFlights(inserted=1_000, updated=500, at_edge=1)
        assert flights.count(server) == loaded | {"flights": 337_776}
        assert flights.punctuality(server) != before
