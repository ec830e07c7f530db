"""Programs of this machine: from Debian's packages, or not to be found."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def debian_program(program: str, package: str) -> str:
    """Where a program is; its package is installed if need be. Skips, with the reason, if that cannot be done."""
    places = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if not shutil.which(program, path=places):
        install = ["apt-get", "install", "-y", "--no-install-recommends", package]
        try:
            for command in (["apt-get", "update"], install):
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"there is no {program}, and apt-get cannot install {package}: {error}")
    path = shutil.which(program, path=places)
    if not path:
        pytest.skip(f"the package {package} has no {program}")
    return path


def path_without(program: str, folder: Path) -> str:
    """A PATH of one new folder, with all that is on ours but one program."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for path in Path(place).glob("*"):
            if path.name != program and not (folder / path.name).is_symlink():
                (folder / path.name).symlink_to(path)
    return str(folder)
