"""The tap's process: fed, watched, read without dead-lock, and never left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from bridge.errors import TapError
from bridge.load.run.run import Run
from bridge.load.tap.process import Tap, find_executable
from bridge.settings.options import Pipeline
from bridge.settings.redact import redactor
from bridge.settings.values.request import Request

SECRET = "s3cr3t-value"
SECOND = timedelta(seconds=1)


class Script:
    """Starts taps that are a few lines of Python, and keeps their log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = io.BytesIO()

    def tap(self, text: str, **given: Any) -> Tap:
        path = self.folder / "tap.py"
        path.write_text("import json, os, signal, subprocess, sys, time\n" + textwrap.dedent(text))
        given = {"config": {}, "environ": dict(os.environ), "redact": redactor([SECRET])} | given
        return Tap([sys.executable, str(path)], log=self.log, **given)

    def read(self, tap: Tap, idle: timedelta | None = 20 * SECOND) -> bytes:
        """Read a tap to its end and wait for a clean exit."""
        with tap:
            data = b"".join(tap.chunks(idle=idle, tick=lambda: None))
            tap.wait(idle=idle, tick=lambda: None)
        return data


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A place for a tap of this test."""
    return Script(tmp_path)


def until(condition: Callable[[], bool], limit: float = 5.0) -> bool:
    """Wait for another process; True as soon as the condition holds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_what_a_tap_gets(script: Script) -> None:
    """Config, catalog and STATE come as files of mode 600, deleted after the exit; nothing else is inherited."""
    text = """
        given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
        print(json.dumps({
            "files": {flag: json.load(open(path)) for flag, path in given.items()},
            "modes": [oct(os.stat(path).st_mode & 0o7777) for path in given.values()],
            "folder": oct(os.stat(os.path.dirname(given["--config"])).st_mode & 0o7777),
            "paths": list(given.values()),
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
            "stdin": sys.stdin.read(),
            "leader": os.getpgid(0) == os.getsid(0) == os.getpid(),
            "env": os.environ["TAP_X"],
        }))
    """
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        said = json.loads(
            script.read(
                script.tap(
                    text,
                    config={"password": SECRET},
                    catalog={"streams": []},
                    state={"bookmarks": {"a": {"id": 2**60}}},
                    environ=dict(os.environ) | {"TAP_X": "x"},
                )
            )
        )
    finally:
        os.close(held)
    assert said["files"] == {
        "--config": {"password": SECRET},
        "--catalog": {"streams": []},
        "--state": {"bookmarks": {"a": {"id": 2**60}}},
    }
    assert said["modes"] == ["0o600"] * 3
    assert said["folder"] == "0o700"
    assert not any(Path(path).exists() or Path(path).parent.exists() for path in said["paths"])
    assert (said["fds"], said["stdin"], said["leader"], said["env"]) == ([0, 1, 2], "", True, "x")


def test_files_of_the_user_are_passed_untouched(script: Script, tmp_path: Path) -> None:
    """A config that is a file goes to the tap by its own path; no STATE and no catalog means no such switch."""
    path = tmp_path / "mine.json"
    path.write_text('{"a": 1.10}')
    said = script.read(script.tap("print(json.dumps(sys.argv[1:]))", config=path))
    assert json.loads(said) == ["--config", str(path)]
    assert path.read_text() == '{"a": 1.10}'


def test_stderr_never_blocks(script: Script) -> None:
    """10 MB on stderr before the first record, and 1 MB without a line end, reach the log; nothing waits for it."""
    text = """
        for number in range(100_000):
            sys.stderr.write(f"{number:099d}\\n")
        sys.stderr.write("x" * 1_000_000)
        sys.stderr.flush()
        print("out")
    """
    assert script.read(script.tap(text)) == b"out\n"
    assert len(script.log.getvalue()) == 11_000_000


@pytest.mark.parametrize("ending", ["\\n", ""])
def test_no_part_of_a_long_line_shows_a_secret(script: Script, ending: str) -> None:
    """A secret is masked wherever it stands in a line without end, also where one read ends and the next begins."""
    text = f"""
        sys.stderr.write(("x" * 65_530 + {SECRET!r}) * 40 + {SECRET[:-1]!r} + "{ending}")
    """
    script.read(script.tap(text))
    log = script.log.getvalue().decode()
    assert log == ("x" * 65_530 + "***") * 40 + SECRET[:-1] + ("\n" if ending else "")


def test_a_log_that_takes_no_more_blocks_nothing(script: Script) -> None:
    """When the disk of the log is full the tap still runs to its end, and its last words are known."""

    class Full(io.BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(28, "No space left on device")

    script.log = Full()
    text = "sys.stderr.write('line\\n' * 100_000)\nsys.stderr.flush()\nsys.exit(3)"
    with pytest.raises(TapError, match="exit_code=3") as caught:
        script.read(script.tap(text))
    assert "line" in caught.value.hint


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("sys.exit(3)", "the tap failed: password is ***! exit_code=3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the tap was killed by a signal signal=SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the tap was killed by a signal signal=SIGSEGV"),
        ("raise ValueError('wrong')", "the tap failed: ValueError: wrong exit_code=1"),
    ],
)
def test_a_failed_tap_is_quoted(script: Script, end: str, message: str) -> None:
    """The error names the exit code or the signal and shows the last stderr lines, secrets masked, as does the log."""
    text = f"""
        for number in range(100):
            print("line", number, file=sys.stderr)
        print("password is {SECRET}!", file=sys.stderr, flush=True)
        print("out", flush=True)
        {end}
    """
    with pytest.raises(TapError) as caught:
        script.read(script.tap(text))
    assert caught.value.message == message
    assert "password is ***!" in caught.value.hint
    assert "line 99" in caught.value.hint
    assert "line 5\n" not in caught.value.hint
    assert SECRET.encode() not in script.log.getvalue()
    assert b"line 5\n" in script.log.getvalue()


def test_a_silent_failure_says_so(script: Script) -> None:
    """A tap that fails without a word is reported as such."""
    with pytest.raises(TapError) as caught:
        script.read(script.tap("sys.exit(1)"))
    assert "nothing to stderr" in caught.value.hint


def test_a_missing_tap(tmp_path: Path) -> None:
    """A program that is not there is an error with what to install; a tap's own folder comes before PATH."""
    with pytest.raises(TapError, match="not found tap=tap-nowhere") as caught:
        find_executable(["tap-nowhere"], tmp_path, {"PATH": "/bin"})
    assert "pip_url" in caught.value.hint
    with pytest.raises(TapError, match="not found tap=tap-nowhere") as caught:
        find_executable(["tap-nowhere"], tmp_path / "venv" / "bin", {"PATH": "/bin"})
    assert caught.value.hint.startswith("`singer-bridge install` puts it")
    beside = find_executable(["tap-smoke"], None, {"PATH": "/bin"})
    assert beside == [str(Path(sys.executable).parent / "tap-smoke")], "who calls us by our path has no PATH of ours"
    mine = tmp_path / "sh"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    assert find_executable(["sh", "-x"], tmp_path, {"PATH": "/bin"}) == [str(mine), "-x"]
    assert find_executable(["sh"], None, {"PATH": "/bin"}) == ["/bin/sh"]
    assert find_executable([str(mine)], None, {}) == [str(mine)]
    mine.chmod(0o644)
    with pytest.raises(TapError):
        find_executable([str(mine)], None, {})


def test_a_program_that_cannot_run(script: Script, tmp_path: Path) -> None:
    """A file that the system refuses to run fails as a tap does, with the reason in its last words."""
    broken = tmp_path / "tap-broken"
    broken.write_text("#!/nonexistent/python\n")
    broken.chmod(0o755)
    tap = Tap([str(broken)], config={}, environ=dict(os.environ), log=script.log, redact=redactor([]))
    with pytest.raises(TapError, match=r"exit_code=12[67]") as caught:
        script.read(tap)
    assert "tap-broken" in caught.value.hint


FAMILY = """
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.write(1, f"{os.getpid()} {child.pid}\\n".encode())
"""


def family(data: bytes) -> list[int]:
    return [int(pid) for pid in data.split()]


def test_a_silent_tap_is_stopped_with_its_children(script: Script) -> None:
    """No output for the idle time stops the tap and whatever it started, and says which setting to change."""
    data = b""
    with (
        pytest.raises(TapError, match="silent for too long") as caught,
        script.tap(FAMILY + "    time.sleep(600)") as tap,
    ):
        for chunk in tap.chunks(idle=SECOND / 2, tick=lambda: None):
            data += chunk
    assert "idle_timeout" in caught.value.hint
    assert len(family(data)) == 2
    assert until(lambda: all(gone(pid) for pid in family(data)))


def test_our_own_pauses_are_not_the_taps_silence(script: Script) -> None:
    """Time that we take between two chunks does not count as idle."""
    with script.tap("print('a', flush=True)\nsys.stdin.read()\nprint('b', flush=True)") as tap:
        chunks = tap.chunks(idle=SECOND * 0.6, tick=lambda: None)
        data = next(chunks)
        time.sleep(0.7)
        assert data + b"".join(chunks) == b"a\nb\n"


def test_a_tap_that_closes_its_output_and_hangs(script: Script) -> None:
    """The end of the output is not the end of the tap: one that stays is stopped after the idle time."""
    text = FAMILY + "    os.close(1)\n    time.sleep(600)"
    text = text.replace('"import time; time.sleep(600)"]', '"import time; time.sleep(600)"], stdout=subprocess.DEVNULL')
    data = b""
    with pytest.raises(TapError, match="closed its output and did not exit"), script.tap(text) as tap:
        for chunk in tap.chunks(idle=10 * SECOND, tick=lambda: None):
            data += chunk
        tap.wait(idle=SECOND / 2, tick=lambda: None)
    assert len(family(data)) == 2
    assert until(lambda: all(gone(pid) for pid in family(data)))


LEAVES = """
    left = [sys.executable, "-c", "import os, time; time.sleep(0.7); os.write(1, bytes([98, 10])); time.sleep(600)"]
    print(subprocess.Popen(left, start_new_session={daemon}).pid, file=sys.stderr)
"""


@pytest.mark.parametrize("daemon", [False, pytest.param(True, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("idle", [20 * SECOND, None])
def test_a_program_that_a_tap_leaves_behind(
    script: Script, monkeypatch: pytest.MonkeyPatch, daemon: bool, idle: timedelta | None
) -> None:
    """It holds the tap's stdout open: what it writes within seconds counts, its silence is the end, and it is stopped.

    One that became a daemon is not ours to stop; nobody waits for it.
    """
    monkeypatch.setattr("bridge.load.tap.pipe.LEFT_OPEN", 1.5 * SECOND)
    text = "print('a', flush=True)" + textwrap.dedent(LEAVES.format(daemon=daemon))
    try:
        assert script.read(script.tap(text), idle) == b"a\nb\n"
        pid = int(script.log.getvalue())
        assert until(lambda: gone(pid), 2) is not daemon
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(script.log.getvalue()), signal.SIGKILL)


def test_a_run_whose_tap_leaves_a_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_spark: None
) -> None:
    """Its exit code 0 is its clean end: the rows after its last STATE are committed, and the next run finds no more."""
    monkeypatch.setattr("bridge.load.tap.pipe.LEFT_OPEN", SECOND / 4)
    lines = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}, "key_properties": []},
        {"type": "RECORD", "stream": "s", "record": {"id": 1}},
        {"type": "STATE", "value": {"bookmarks": {"s": {"id": 1}}}},
        {"type": "RECORD", "stream": "s", "record": {"id": 2}},
    ]
    text = f"""
        import subprocess, sys
        lines = {[json.dumps(line) for line in lines]}
        print(*lines[: 1 if "--state" in sys.argv else None], sep="\\n", flush=True)
        subprocess.Popen(["sleep", "600"])
    """
    (tmp_path / "tap.py").write_text(textwrap.dedent(text))
    settings = {
        "name": "p",
        "source": {"tap": [sys.executable, str(tmp_path / "tap.py")]},
        "destination": {"bucket": str(tmp_path / "lake"), "load_method": "append-only"},
    }
    for _ in range(2):
        result = Run(Pipeline.model_validate(settings), Request(), tmp_path / "home").execute()
        assert (result.status, result.error) == ("success", None)
        files = (tmp_path / "lake/p/s").glob("*.parquet")
        assert sorted(n for file in files for n in pq.ParquetFile(file).read()["id"].to_pylist()) == [1, 2]
        assert result.state == {"bookmarks": {"s": {"id": 1}}}


def test_a_tap_that_ignores_sigterm(script: Script) -> None:
    """A tap that will not go is killed after the grace; one that exits 0 on SIGTERM is not taken for complete."""
    with script.tap(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + textwrap.dedent(FAMILY) + "time.sleep(600)"
    ) as tap:
        pids = family(next(tap.chunks(idle=10 * SECOND, tick=lambda: None)))
        began = time.monotonic()
        tap.terminate(grace=SECOND / 2)
        assert time.monotonic() - began > 0.4
    assert until(lambda: all(gone(pid) for pid in pids))
    polite = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(600)"
    with script.tap(polite) as tap:
        next(tap.chunks(idle=10 * SECOND, tick=lambda: None))
        tap.terminate()
        with pytest.raises(TapError, match="the tap failed exit_code=0"):
            tap.wait(idle=SECOND, tick=lambda: None)


def test_leaving_stops_everything(script: Script) -> None:
    """An error on our side, raised by `tick` too, leaves no process and no file behind."""

    class Stop(Exception):
        pass

    pids: list[int] = []

    def tick() -> None:
        if pids:
            raise Stop

    with pytest.raises(Stop), script.tap(FAMILY + "    time.sleep(600)", config={"a": 1}) as tap:
        folder = Path(tap._files.name)
        assert (folder / "config.json").exists()
        for chunk in tap.chunks(idle=None, tick=tick):
            pids += family(chunk)
    assert until(lambda: all(gone(pid) for pid in pids))
    assert not folder.exists()


def test_large_output_is_read_whole(script: Script) -> None:
    """Output much larger than the pipe arrives whole and in order, in large chunks."""
    chunks: list[bytes] = []
    with script.tap("for n in range(100_000): print(f'{n:049d}')") as tap:
        chunks += tap.chunks(idle=20 * SECOND, tick=lambda: None)
        tap.wait(idle=20 * SECOND, tick=lambda: None)
    data = b"".join(chunks)
    assert data == b"".join(b"%049d\n" % n for n in range(100_000))
    assert len(data) / len(chunks) > 20_000


def test_no_secret_in_any_process_list(script: Script) -> None:
    """While a tap runs, none of its secrets is in a command line: neither its own, nor its guard's, nor ours."""
    text = "print(json.load(open(sys.argv[2]))['password'], flush=True)\ntime.sleep(600)"
    with script.tap(text, config={"password": SECRET}, state={"token": SECRET}) as tap:
        assert next(tap.chunks(idle=10 * SECOND, tick=lambda: None)).startswith(
            SECRET.encode()
        )  # the newline may follow
        own = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
        assert len(own) >= 3
        for pid in own:
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        tap.kill()


_ORCHESTRATOR = """
    import io, os, sys
    from bridge.settings.redact import redactor
    from bridge.load.tap.process import Tap

    with Tap([sys.executable, sys.argv[1]], config={"password": "x"}, state={"a": 1}, environ=dict(os.environ),
             log=io.BytesIO(), redact=redactor([])) as tap:
        for chunk in tap.chunks(idle=None, tick=lambda: None):
            print(tap._files.name, tap._guard.pid, chunk.decode().strip(), flush=True)
"""


@pytest.mark.parametrize("stubborn", [False, True])
def test_nothing_outlives_a_killed_orchestrator(tmp_path: Path, stubborn: bool) -> None:
    """SIGKILL of ours: within 3 s the tap, its child, the guard and the files with the secrets are gone.

    Also when the tap ignores SIGTERM and writes nothing that could fail.
    """
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if stubborn else ""
    text = "import os, signal, subprocess, sys, time\n" + ignore + textwrap.dedent(FAMILY) + "time.sleep(600)\n"
    (tmp_path / "tap.py").write_text(text)
    command = [sys.executable, "-c", textwrap.dedent(_ORCHESTRATOR), str(tmp_path / "tap.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout
        folder, *pids = ours.stdout.readline().split()
        assert stat.S_ISDIR(os.stat(folder).st_mode)
        ours.send_signal(signal.SIGKILL)
        assert until(lambda: all(gone(int(pid)) for pid in pids), limit=3.0)
    assert len(pids) == 3
    assert not os.path.exists(folder)


def test_a_tap_that_ends_leaves_no_thread_and_no_child(script: Script) -> None:
    """After a run nothing of it is left in our process."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    script.read(script.tap("print('a')"))
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert "tap-stderr" not in [thread.name for thread in threading.enumerate()]
