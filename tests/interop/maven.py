"""Programs in Java that Maven fetches, once, into `.interop/`; and the Java that runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.s3server import ROOT

_HOME = ROOT / ".interop"
_SYSTEM = Path("/usr/lib/jvm")
"""Where Linux keeps Javas that are not in the path."""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>interop</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>"""

_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
"""Has Maven not even look at what an artifact needs, which may be described at places that cannot be reached."""


def maven_files(name: str, *artifacts: str, alone: bool = False) -> Path:
    """A folder with artifacts, `group:artifact:version[:type[:classifier]]`, and what they need unless `alone`."""
    home = _HOME / name
    if not home.exists():
        assert shutil.which("mvn"), f"make interop fetches {name}: install Maven"
        making = _HOME / f"{name}.making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        end = _ALONE if alone else ""
        dependencies = "".join(f"<dependency>{_dependency(artifact)}{end}</dependency>" for artifact in artifacts)
        (making / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=."]
        subprocess.run(["mvn", "-B", "-q", "-U", *goal], cwd=making, check=True)
        making.replace(home)
    return home


def _dependency(artifact: str) -> str:
    tags = ("groupId", "artifactId", "version", "type", "classifier")
    return "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(tags, artifact.split(":"), strict=False))


@cache
def java(least: int) -> Path:
    """The home of the oldest Java of at least that version: in JAVA_HOME, in the path, or of this system."""
    homes = [Path(value) for value in [os.environ.get("JAVA_HOME", "")] if value]
    if program := shutil.which("java"):
        homes.append(Path(program).resolve().parents[1])
    homes += sorted(_SYSTEM.iterdir()) if _SYSTEM.is_dir() else []
    versions = {_version(home): home for home in reversed(homes) if (home / "bin/java").exists()}
    enough = sorted(version for version in versions if version >= least)
    assert enough, f"make interop needs Java {least} or newer: install it, or set JAVA_HOME"
    return versions[enough[0]]


def _version(home: Path) -> int:
    said = subprocess.run([home / "bin/java", "-version"], capture_output=True, text=True, check=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0
