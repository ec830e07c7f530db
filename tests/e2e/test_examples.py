"""What `--help` gives as examples works, as it stands there: each is typed in a project as a user has it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from tests.e2e.project import BEFORE, EXTRA, make_project
from tests.support.one_spark import OneSpark, type_here
from tests.support.shell import Typed, leaves, type_in

_PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
_NOT_HERE = {
    "demo": "it starts PostgreSQL and two Sparks: tests/e2e/test_demo_database.py, and `make demo`",
    "serve": "it does not end by itself: tests/e2e/test_service.py",
    "trigger": "it needs a service: tests/unit/serve/service/test_client.py",
}
_LOADS = ("run",)
"""What makes the lake in which all the others are typed."""
_ELSEWHERE = ("init",)
"""What wants a folder without a bridge.yaml."""
_RUN = "20261120T133501Z-k3f9a"
"""The run of the examples; it stands for the latest one."""

LEAVES = leaves()
EXAMPLES = {
    words: re.findall(r"^\s*(singer-bridge .*\S)\s*$", command.help or "", re.MULTILINE)
    for words, command in LEAVES.items()
}
TYPED = [line for words, lines in EXAMPLES.items() if words not in _NOT_HERE and words not in _LOADS for line in lines]


def environ(folder: Path) -> dict[str, str]:
    """A user's environment: the taps on PATH, a home and a crontab of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SINGER_BRIDGE_")}
    home, programs = str(folder / "home"), f"{folder / 'bin'}{os.pathsep}{_PATH}"
    cache = str(platformdirs.user_cache_path())  # the machine's: in a new one the JVM would leave its archive again
    return kept | {"HOME": home, "PATH": programs, "EDITOR": "bookmark-editor", "XDG_CACHE_HOME": cache}


@pytest.fixture(scope="module")
def loaded(one_spark: OneSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose lake was loaded by the examples of `run`; each of them has to be a success."""
    folder = tmp_path_factory.mktemp("loaded") / "project"
    make_project(folder)
    for line in (line for words in _LOADS for line in EXAMPLES[words]):
        with one_spark.lent():
            assert type_here(shlex.split(line)[1:], folder, environ(folder)) == 0, f"$ {line}"
    return folder


@pytest.fixture
def typed(
    loaded: Path,
    one_spark: OneSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Typed]:
    """Type a command in a copy of that project."""
    shutil.copytree(loaded, tmp_path / "project", symlinks=True)
    for name in set(os.environ) - set(environ(tmp_path)):
        monkeypatch.delenv(name)
    for name, value in environ(tmp_path / "project").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / "project")
    with one_spark.lent():
        yield type_in(capfd)


@pytest.mark.parametrize("words", EXAMPLES)
def test_every_verb_has_two_examples_of_its_own(words: str) -> None:
    """Each verb's help shows two ways to use it, and those are of this very verb."""
    assert len(EXAMPLES[words]) == 2
    assert all(line.startswith(f"singer-bridge {words}") for line in EXAMPLES[words])


def test_what_is_not_typed_here_exists() -> None:
    """The lists of exceptions speak of verbs that there are."""
    assert {*_NOT_HERE, *_LOADS, *_ELSEWHERE} <= LEAVES.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", TYPED)
def test_an_example_works(line: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed as it stands in the help it is a success, and says something, or writes the file that it names."""
    words, _, target = line.removeprefix("singer-bridge ").partition(" > ")
    if words.split()[0] in _ELSEWHERE:
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
    for mark, files in EXTRA.items():
        for name, text in files.items() if mark in line else ():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
    for mark, before in BEFORE.items():
        assert mark not in line or typed(before).code == 0
    latest = max(Path("lake/.bridge/flights/runs").glob("*.json"), default=Path(_RUN)).stem
    done = typed(words.replace(_RUN, latest))
    assert done.code == 0, f"$ {line}\n{done.out}{done.err}"
    assert done.out or not target
    if target:
        path = Path(target).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(done.out)
