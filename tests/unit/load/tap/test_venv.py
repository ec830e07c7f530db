"""The venvs of taps, with the real uv and hand-made packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.errors import SettingsError, TapError
from bridge.load.tap.venv import Installation, Venv
from tests.support.wheels import wheel

PROGRAMS = ["tap-x"]


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is tried once."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


def says(venv: Venv, program: str = "tap-x", flag: str = "--about") -> str:
    return subprocess.run([venv.bin / program, flag], capture_output=True, text=True, check=True).stdout


def venvs(venv: Venv) -> set[str]:
    return {path.name for path in venv.root.glob("venv.*")}


def test_a_tap_is_installed_once(tmp_path: Path) -> None:
    """The program runs, its versions are on record, and the second installation finds nothing to do."""
    package = wheel(tmp_path)
    venv = Venv(tmp_path / "home", str(package))
    assert venv.install(Installation(tmp_path, PROGRAMS))
    assert '"tap-x"' in says(venv)
    assert [line.split(" @ ")[0] for line in venv.packages()] == ["tap-x"]
    before = venv.bin.resolve()
    assert not venv.install(Installation(tmp_path, PROGRAMS))
    assert venv.bin.resolve() == before


def test_no_uv_on_path_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv comes with singer-bridge: whatever is on PATH, the same venv is made, and pip's index variables count."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    wheel(tmp_path)
    venv = Venv(tmp_path / "home", "./tap_x-1.0-py3-none-any.whl")
    assert venv.install(Installation(tmp_path, PROGRAMS))
    assert '"tap-x"' in says(venv)
    assert venv.packages()[0].startswith("tap-x @ ${PROJECT_URI}/tap_x-1.0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(TapError) as caught:
        Venv(tmp_path / "home", "tap-z").install(Installation(tmp_path))
    assert "127.0.0.1:9" in caught.value.hint


def test_pipelines_with_one_pip_url_share_a_venv(tmp_path: Path) -> None:
    """The folder is named by what is installed; no secret of the address is in it."""
    assert Venv(tmp_path, "tap-x==1.2").root == Venv(tmp_path, "tap-x==1.2").root
    assert Venv(tmp_path, "tap-x==1.2").root != Venv(tmp_path, "tap-x==1.3").root
    names = {
        "tap-x[fast]==1.2": "tap-x",
        "git+https://user:hunter2@example.com/team/tap-y.git@v1#egg=z": "tap-y",
        "--index-url=https://hunter2@example.com tap-z": "tap-z",
        "dist/tap_x-1.0-py3-none-any.whl": "tap_x",
        ".": "tap",
    }
    for pip_url, name in names.items():
        assert Venv(tmp_path, pip_url).root.name.rsplit("-", 1)[0] == name


def test_the_lock_file_brings_the_same_versions_back(tmp_path: Path) -> None:
    """On another machine the lock file decides, wherever the project stands; `upgrade` chooses anew."""
    here, there = tmp_path / "my project", tmp_path / "elsewhere"
    index = here / "index"
    index.mkdir(parents=True)
    wheel(index)
    pip_url = f"tap-x --no-index --find-links '{index}'"
    venv = Venv(here / ".singer-bridge", pip_url)
    venv.install(Installation(here, PROGRAMS))
    assert venv.packages() == ["tap-x==1.0"]
    wheel(index, version="2.0")
    clone = Venv(there / ".singer-bridge", pip_url)
    clone.root.mkdir(parents=True)
    shutil.copy(venv.lock, clone.lock)
    assert clone.install(Installation(there, PROGRAMS, locked=True))
    assert clone.packages() == ["tap-x==1.0"]
    assert "tap_x-1.0.dist-info" in {path.name for path in clone.bin.parent.glob("lib/*/site-packages/*")}
    assert clone.install(Installation(there, PROGRAMS, upgrade=True))
    assert clone.packages() == ["tap-x==2.0"]


def test_a_path_in_the_lock_file_is_relative_to_the_project(tmp_path: Path) -> None:
    """A project that was moved, blanks in its name and all, installs from its lock file."""
    here, there = tmp_path / "my project", tmp_path / "moved to"
    here.mkdir()
    wheel(here)
    venv = Venv(here / "home", "./tap_x-1.0-py3-none-any.whl")
    venv.install(Installation(here, PROGRAMS))
    assert str(tmp_path) not in venv.lock.read_text()
    here.rename(there)
    moved = Venv(there / "home", "./tap_x-1.0-py3-none-any.whl")
    shutil.rmtree(moved.bin.parent.resolve())
    assert moved.install(Installation(there, PROGRAMS, locked=True))
    assert '"tap-x"' in says(moved)


def test_locked_without_a_lock_file_is_refused(tmp_path: Path) -> None:
    """Nothing is chosen where nothing may be chosen."""
    with pytest.raises(SettingsError, match="there is no lock file"):
        Venv(tmp_path / "home", "tap-x").install(Installation(tmp_path, PROGRAMS, locked=True))
    assert not (tmp_path / "home").exists()


def test_a_changed_lock_file_is_installed(tmp_path: Path) -> None:
    """What came with a pull is installed by the next call, without any flag."""
    wheel(tmp_path)
    wheel(tmp_path, version="2.0")
    venv = Venv(tmp_path / "home", f"tap-x --no-index --find-links {tmp_path}")
    venv.install(Installation(tmp_path, PROGRAMS))
    assert venv.packages() == ["tap-x==2.0"]
    venv.lock.write_text(venv.lock.read_text().replace("2.0", "1.0"))
    assert venv.install(Installation(tmp_path, PROGRAMS))
    assert venv.packages() == ["tap-x==1.0"]
    assert not venv.install(Installation(tmp_path, PROGRAMS))


def test_a_failure_leaves_the_venv_before(tmp_path: Path) -> None:
    """A package that is gone, or that lost its program, replaces nothing; the installer's words are in the hint."""
    package = wheel(tmp_path)
    venv = Venv(tmp_path / "home", str(package))
    venv.install(Installation(tmp_path, PROGRAMS))
    before = venv.bin.resolve(), venv.lock.read_text()
    wheel(tmp_path, program="tap-other")
    with pytest.raises(TapError, match="does not have this tap") as caught:
        venv.install(Installation(tmp_path, PROGRAMS, upgrade=True))
    assert "it installed: tap-other" in caught.value.hint
    package.unlink()
    with pytest.raises(TapError, match="cannot be installed") as caught:
        venv.install(Installation(tmp_path, PROGRAMS, upgrade=True))
    assert "uv said:" in caught.value.hint
    assert package.name in caught.value.hint
    assert (venv.bin.resolve(), venv.lock.read_text()) == before
    assert len(venvs(venv)) == 1
    assert '"tap-x"' in says(venv)


def test_secrets_of_the_address_are_not_told(tmp_path: Path) -> None:
    """Whatever the installer says, a password in `pip_url` is masked."""
    venv = Venv(tmp_path / "home", "tap-x --index-url http://reader:hunter2-longer@127.0.0.1:9/simple")
    with pytest.raises(TapError) as caught:
        venv.install(Installation(tmp_path, PROGRAMS))
    assert "hunter2" not in caught.value.hint + caught.value.message


def test_the_venv_before_stays_until_the_next_one(tmp_path: Path) -> None:
    """A tap that runs in the venv that is replaced goes on; what a crash left is swept away."""
    venv = Venv(tmp_path / "home", str(wheel(tmp_path)))
    venv.install(Installation(tmp_path, PROGRAMS))
    first = venv.bin.resolve()
    (venv.root / "venv.dead").mkdir()
    venv.install(Installation(tmp_path, PROGRAMS, upgrade=True))
    assert first.exists()
    assert "venv.dead" not in venvs(venv)
    venv.install(Installation(tmp_path, PROGRAMS, upgrade=True))
    assert not first.exists()
    assert len(venvs(venv)) == 2


def test_two_installations_at_once_make_one_venv(tmp_path: Path) -> None:
    """The second waits for the first, and finds the work done."""
    venv = Venv(tmp_path / "home", str(wheel(tmp_path)))
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: venv.install(Installation(tmp_path, PROGRAMS)), range(3)))
    assert sorted(done) == [False, False, True]
    assert len(venvs(venv)) == 1
    assert '"tap-x"' in says(venv)


def test_another_python(tmp_path: Path) -> None:
    """`--python` behind the package chooses it, and a tap that needs one is refused with these words."""
    package = wheel(tmp_path)
    venv = Venv(tmp_path / "home", f"{package} --python {sys.executable}")
    assert venv.package == "tap_x"
    assert venv.install(Installation(tmp_path, PROGRAMS))
    assert not venv.install(Installation(tmp_path, PROGRAMS))
    assert '"tap-x"' in says(venv)
    shutil.rmtree(venv.bin.resolve().parent)
    assert venv.install(Installation(tmp_path, PROGRAMS, locked=True))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "pyproject.toml").write_text(
        '[project]\nname = "tap-old"\nversion = "1"\nrequires-python = ">=3.99"'
    )
    for pip_url, words in (("./old", "as in `pip_url: tap-x --python 3.12`"), ("tap-x --python 3.99", "give its path")):
        with pytest.raises(TapError, match="cannot be installed") as caught:
            Venv(tmp_path / "home", pip_url).install(Installation(tmp_path))
        assert words in caught.value.hint
