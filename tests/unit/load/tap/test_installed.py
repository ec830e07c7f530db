"""The version of a tap: read from the venv that its program stands in, and never guessed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bridge.load.tap.installed import tap_version


def venv(folder: Path, package: str, version: str, entry_points: str) -> Path:
    """Make what an installer leaves of a package, and return the folder of programs."""
    info = folder / "lib/python3.11/site-packages" / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / "bin").mkdir(exist_ok=True)
    return folder / "bin"


def test_a_real_tap() -> None:
    """The taps of this project are installed beside our own Python."""
    from importlib.metadata import version

    assert tap_version(str(Path(sys.executable).with_name("tap-smoke"))) == version("singer-bridge")


def test_the_package_that_has_the_program(tmp_path: Path) -> None:
    """A package need not be named as its tap is; another one that has a program of a similar name is not it."""
    venv(tmp_path, "tap-x-tools", "9.9", "[console_scripts]\ntap-x-more = x:main\n\n[other]\ntap-x = x:main\n")
    programs = venv(tmp_path, "meltanolabs-tap-x", "1.2.3rc1", "[console_scripts]\nother = a:b\ntap-x=tap_x.tap:cli\n")
    assert tap_version(str(programs / "tap-x")) == "1.2.3rc1"
    assert tap_version(str(programs / "tap-x-more")) == "9.9"


def test_through_a_link(tmp_path: Path) -> None:
    """pipx and uv put links on PATH; what counts is the venv that the link leads to."""
    programs = venv(tmp_path / "venv", "tap-x", "2.0", "[console_scripts]\ntap-x = x:main\n")
    (programs / "tap-x").write_text("#!/bin/sh\n")
    (tmp_path / "bin").mkdir()
    os.symlink(programs / "tap-x", tmp_path / "bin/tap-x")
    assert tap_version(str(tmp_path / "bin/tap-x")) == "2.0"


@pytest.mark.parametrize("program", ["/bin/sh", "/nowhere/bin/tap-x", "tap-x"])
def test_unknown(program: str) -> None:
    """A program that no package put there has no version, and that is no error."""
    assert tap_version(program) == "unknown"


def test_a_damaged_package(tmp_path: Path) -> None:
    """A package without the files that a package has is passed over."""
    programs = venv(tmp_path, "tap-x", "1.0", "[console_scripts]\ntap-x = x:main\n")
    info = next(tmp_path.glob("lib/python3.11/site-packages/*"))
    (info / "METADATA").unlink()
    assert tap_version(str(programs / "tap-x")) == "unknown"
    (info / "entry_points.txt").write_bytes(b"\xff\xfe")
    assert tap_version(str(programs / "tap-x")) == "unknown"
