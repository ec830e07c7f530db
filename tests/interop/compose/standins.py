"""Images by the names that ours are built on, where no registry of images is reached: Debian, with this Python in it.

They have in common with the real ones what a Dockerfile relies on: the release of Debian, where Python is, and how the
server of PostgreSQL is set up and told to stop. CI has the real ones.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.interop.compose.engine import Engine
from tests.support.debian import debian_program

PYTHON, POSTGRES = "python:3.12-slim-bookworm", "postgres:17-bookworm"
_RELEASE = "bookworm"
_LIBRARIES = (
    "ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,libuuid1,"
    "netbase,tzdata,zlib1g"
)
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_TRUST = f"ENV LANG=C.UTF-8 SSL_CERT_FILE=/{_CERTIFICATES} PIP_CERT=/{_CERTIFICATES}"
_SERVER = f"""\
FROM {PYTHON}
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql && rm -rf /var/lib/apt/lists/*
COPY start-postgres /usr/local/bin/
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/start-postgres"]
"""
_START = """\
# As the image `postgres` does it: an empty folder gets a server whose superuser has POSTGRES_PASSWORD.
set -eu
export PATH="$PATH:$(echo /usr/lib/postgresql/*/bin)" PGDATA=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    chown postgres "$PGDATA"
    exec setpriv --reuid postgres --regid postgres --clear-groups sh "$0"
fi
chmod 700 "$PGDATA"
if ! [ -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" >/tmp/password
    initdb --username postgres --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
fi
exec postgres -c "listen_addresses=*"
"""


def provide(engine: Engine) -> None:
    """Make the images that the engine does not have yet. The first call takes some minutes."""
    existing = engine.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    if PYTHON not in existing:
        with tempfile.TemporaryDirectory() as folder:
            _debian(Path(folder))
            _give_python(Path(folder))
            archive = Path(folder) / "archive.tar"
            subprocess.run(["tar", "-C", folder, "--exclude", "./archive.tar", "-cf", archive, "."], check=True)
            engine.docker("import", "--change", _TRUST, "--change", 'CMD ["python3"]', archive, PYTHON)
    if POSTGRES not in existing:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "Dockerfile").write_text(_SERVER)
            (Path(folder) / "start-postgres").write_text(_START)
            engine.docker("build", "--network", "host", "--tag", POSTGRES, folder)


def _debian(root: Path) -> None:
    """A small Debian of the release that the real images have, from where this machine has its packages."""
    sources = [file.read_text() for file in Path("/etc/apt").glob("sources.list*/*.sources")]
    sources += [file.read_text() for file in (Path("/etc/apt/sources.list"),) if file.exists()]
    mirror = re.search(r"^(?:URIs:|deb(?: \[.*\])?) +(\S+)", "\n".join(sources), re.MULTILINE)
    if not mirror:
        pytest.skip("this machine names no mirror of Debian")
    words = ["--variant=minbase", f"--include={_LIBRARIES}", _RELEASE, root, mirror[1]]
    subprocess.run([debian_program("debootstrap", "debootstrap"), *words], check=True, stdout=subprocess.DEVNULL)
    shutil.copyfile(f"/{_CERTIFICATES}", root / _CERTIFICATES)  # a proxy of this machine is trusted inside, too


def _give_python(root: Path) -> None:
    """Copy the Python of the tests to where the real image has its own."""
    skip = shutil.ignore_patterns("test", "config-*", "__pycache__", "site-packages")
    local = root / "usr/local"
    shutil.copytree(sys.base_prefix, local, symlinks=True, dirs_exist_ok=True, ignore=skip)
    for script in (local / "bin").glob("pip*"):
        script.unlink()
    for command in (["ldconfig"], ["python3", "-m", "ensurepip"]):
        subprocess.run(["chroot", root, *command], check=True, stdout=subprocess.DEVNULL)
    for name, target in (("python", "python3"), ("pip", "pip3")):
        if not (local / "bin" / name).exists():
            (local / "bin" / name).symlink_to(target)
