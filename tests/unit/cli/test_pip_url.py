"""`run --pip-url`: the tap is installed on the way of a run that has no bridge.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.load.tap.venv import Venv
from tests.support.shell import Typed
from tests.support.wheels import wheel


def venvs(folder: Path) -> list[Path]:
    return sorted(folder.glob(".singer-bridge/taps/*/venv/bin/tap*"))


def test_its_only_tap_is_found(typed: Typed, folder: Path) -> None:
    """The tap's name is the pipeline's, as with --tap; the second time nothing is installed."""
    package = wheel(folder, "a-tap", program="tap-x")
    line = f"run --pip-url {package.name} --to ./lake --dry-run"
    done = typed(line)
    assert done.code == 0
    assert "tap-x" in done.out
    assert "a_tap installed in " in done.err
    (program,) = venvs(folder)
    package.unlink()
    again = typed(line)
    assert (again.code, again.err) == (0, "")
    assert venvs(folder) == [program]
    quiet = typed(f"{line} --name sales --json")
    assert (quiet.code, quiet.json["pipeline"]) == (0, "sales")


def test_a_tap_that_the_package_has_not(typed: Typed, folder: Path) -> None:
    """Named by --tap, or not to be found; the error says what it installed."""
    wheel(folder, "tap-x", program="loader")
    line = "run --pip-url ./tap_x-1.0-py3-none-any.whl --to ./lake --dry-run"
    done = typed(line)
    assert done.code == 1
    assert "no program whose name begins with tap" in done.err
    assert "it installed: loader\n" in done.err
    assert typed(f"{line} --tap loader").code == 0
    assert "the package does not have this tap tap=tap-y" in typed(f"{line} --tap tap-y").err


def test_several_taps(typed: Typed, folder: Path) -> None:
    """Which one is asked; and the answer is taken."""
    both = f"{wheel(folder, 'tap-x')} {wheel(folder, 'tap-y')}"
    line = f"run --pip-url '{both}' --to ./lake --dry-run"
    done = typed(line)
    assert done.code == 1
    assert "--tap, one of tap-x, tap-y" in done.err
    assert typed(f"{line} --tap tap-y").code == 0
    assert not (folder / "lake").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--to ./lake --tap-config none.json", "--tap-config: cannot read the tap's settings"),
        ("--to ./lake --tap-config list.json", "must be a JSON object"),
        ("--to ./lake --tap-config '{'", "--tap-config: not valid JSON"),
        ("--to ./lake --name a/b", "--name"),
        ("--to ./lake --all", "--all means every pipeline of the file"),
        ("", "--pip-url needs --to"),
        ("--to ./lake --name x --tap ''", "--tap"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_installed(flags: str, said: str, typed: Typed, folder: Path) -> None:
    """A tap may take minutes to install."""
    (folder / "list.json").write_text(json.dumps([1]))
    wheel(folder, "tap-x")
    done = typed(f"run --pip-url ./tap_x-1.0-py3-none-any.whl {flags}")
    assert done.code == 2
    assert said in done.err
    assert not (folder / ".singer-bridge").exists()


def test_what_cannot_be_installed(typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installer's words are the hint, also as JSON; nothing half-made is left."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    line = "run --pip-url tap-that-nobody-has --to ./lake"
    done = typed(line)
    assert done.code == 1
    assert "the tap cannot be installed\nhint: check its name in pip_url and the network; uv said:" in done.err
    assert typed(f"{line} --json").json["error"]["message"] == "the tap cannot be installed"
    assert not list(Venv(folder / ".singer-bridge", "tap-that-nobody-has").root.glob("venv*"))
