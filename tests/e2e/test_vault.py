"""A password of a vault, by `${cmd:...}`: it reaches the tap and nobody else, and the vault is asked seldom."""

from __future__ import annotations

import json
import stat
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TAP, Project, stream
from tests.e2e.serving import served
from tests.support.service import until
from tests.support.shell import Done

PASSWORD = "hunter2-of-the-vault"


class Vaulted(Project):
    """A project whose tap prints its password on stderr. `starts` is how often the vault was asked."""

    def write(self, printed: str = f"print('{PASSWORD}')", **more: Any) -> None:
        vault = self.folder / "vault"
        vault.write_text(f"#!{sys.executable}\nimport sys\nopen('starts', 'a').write('x')\n{printed}\n")
        vault.chmod(vault.stat().st_mode | stat.S_IXUSR)
        config = {"seed": 1, "secret": "${cmd:./vault}", "streams": [stream(records=20)], **more}
        shop = {"source": {"tap": TAP, "config": config}, "destination": {"bucket": "lake", "path": "smoke"}}
        service = {"port": 0}
        (self.folder / "bridge.yaml").write_text(json.dumps({"service": service, "pipelines": {"shop": shop}}))

    @property
    def starts(self) -> int:
        file = self.folder / "starts"
        return len(file.read_text()) if file.exists() else 0

    def asked(self, *arguments: str) -> tuple[int, Done]:
        """Type a command; return how often it asked the vault, and what it printed."""
        before, done = self.starts, self.command(*arguments)
        assert PASSWORD not in done.out + done.err
        return self.starts - before, done

    def holds_password(self) -> list[Path]:
        """The files of the lake, the scratch and the logs that have the password."""
        files = (file for file in self.folder.rglob("*") if file.is_file() and file.name != "vault")
        return [file for file in files if PASSWORD.encode() in file.read_bytes()]


@pytest.fixture
def vaulted(tmp_path: Path) -> Vaulted:
    project = Vaulted(tmp_path)
    project.write()
    return project


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_asks_once_and_shows_nothing(vaulted: Vaulted) -> None:
    """A run, a dry run, doctor: one start each. Verbs that need no password: none. Nothing holds or shows it."""
    for arguments in (("config", "check"), ("config", "show", "--all"), ("status",), ("runs", "list")):
        assert vaulted.asked(*arguments)[0] == 0, arguments
    for arguments in (("doctor", "--no-spark"), ("run", "--dry-run"), ("run", "-v")):
        times, done = vaulted.asked(*arguments)
        assert (times, done.code) == (1, 0), (arguments, done.err)
    assert vaulted.ids("users") == list(range(1, 21))
    vaulted.write(fail={"at": 5, "how": "exit"})
    assert vaulted.asked("run", "--full", "-v")[1].code == 1
    times, done = vaulted.asked("runs", "show", "--logs")
    assert (times, "***" in done.out) == (0, True)
    assert vaulted.holds_password() == []


@pytest.mark.slow
def test_a_vault_that_is_locked(vaulted: Vaulted) -> None:
    """The run ends with exit code 2 and what stderr said, before the tap starts; its record says the same."""
    vaulted.write(f"print('{PASSWORD}'); print('the vault is locked: {PASSWORD}', file=sys.stderr); sys.exit(4)")
    times, done = vaulted.asked("run")
    assert (times, done.code) == (1, 2)
    assert "bridge.yaml:1: ${cmd:...} failed command=vault exit=4" in done.err
    assert "it says: the vault is locked: ***" in " ".join(done.err.split())
    times, done = vaulted.asked("doctor", "--no-spark", "--json")
    assert (times, done.code) == (1, 2)
    assert "it says: the vault is locked: ***" in json.dumps(json.loads(done.out))
    assert vaulted.asked("config", "check")[1].code == 0
    assert vaulted.holds_password() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_service_asks_once_for_many_looks(vaulted: Vaulted) -> None:
    """Pages, a changed file and a run of the service share one start; the page shows no password."""
    with served(vaulted.folder) as url:
        for _ in range(3):
            for path in ("/", "/pipelines/shop", "/pipelines/shop/settings"):
                with urllib.request.urlopen(url.rstrip("/") + path) as answer:
                    assert PASSWORD not in answer.read().decode()
        with (vaulted.folder / "bridge.yaml").open("a") as file:
            file.write("\n# changed\n")
        until(lambda: "settings_read" in (vaulted.folder / "service.log").read_text())
        assert vaulted.command("trigger", "shop", "--url", url, "--wait", timeout=300).code == 0
        assert vaulted.ids("users") == list(range(1, 21))
    assert vaulted.starts == 1
    assert vaulted.holds_password() == []
