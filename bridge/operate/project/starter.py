"""A new project: four files. None of them replaces an existing file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import SettingsError
from bridge.settings.load import FILE_NAME

SCHEMA_FILE = "bridge.schema.json"
ENV_EXAMPLE = ".env.example"

_BRIDGE_YAML = """\
# yaml-language-server: $schema=./bridge.schema.json
#
# What goes where. `singer-bridge config check` reads it without running anything. ${NAME} comes from the environment,
# or from .env beside this file: no password needs to stand here.

pipelines:
  # It runs as it stands: tap-smoke comes with singer-bridge and makes up numbered records. Then add your own,
  #   singer-bridge add sales --tap tap-postgres --pip-url meltanolabs-tap-postgres
  # and delete this one.
  example:
    source:
      tap: tap-smoke                    # on PATH, a path, or a list of arguments
      # pip_url: tap-smoke==1.0         # what `singer-bridge install` installs
      config:                           # the tap's own settings
        streams:
          - name: orders
            records: 1000
      # select: ["*", "!*.amount"]      # streams and columns by globs, the last match wins
    destination:
      bucket: ./lake                    # relative to this file; or s3://lake/team
      # load_method: auto               # auto | append-only | overwrite | upsert | history
    # commit: {every: 5m, bytes: 256MiB}             # whichever comes first, at a STATE; and always at the end
    # rejects: {on_reject: quarantine, max: 1000}    # what does not fit its schema is kept aside
    # retry: {attempts: 3, backoff: 30s}             # a run that failed goes on from its last commit
    # schedule: {cron: "0 */2 * * *"}                # once `singer-bridge schedule install` was called
"""

_GITIGNORE = """\
# passwords
.env

# scratch, but for the versions of the taps and the catalogs
.singer-bridge/*
!.singer-bridge/catalogs/
!.singer-bridge/taps/
.singer-bridge/taps/*/*
!.singer-bridge/taps/*/requirements.lock

# the lake, where it is a folder in here
/lake/
"""

_DOTENV = """\
# Copy this file to .env and fill it in; .env stays out of version control. bridge.yaml refers to these as ${NAME}.
# What the environment itself has wins.
"""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The outcome for one file."""

    name: str
    state: str
    """`written`, `replaced` or `kept`."""
    note: str = ""


def write_project(folder: Path, schema: Callable[[], str], *, force: bool) -> list[WrittenFile]:
    """Write the missing files; with `force` also the schema again. Raises `SettingsError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _write(folder / FILE_NAME, _BRIDGE_YAML),
            _write(folder / SCHEMA_FILE, schema(), force=force),
            _write(folder / ".gitignore", _GITIGNORE, _unignored),
            _write(folder / ENV_EXAMPLE, _DOTENV),
        ]
    except OSError as error:
        reason = error.strerror
        raise SettingsError(
            "cannot write the project", hint="choose another folder", reason=reason, folder=folder
        ) from error


def _write(path: Path, text: str, look: Callable[[str], str] = lambda _: "", *, force: bool = False) -> WrittenFile:
    exists = path.exists()
    if exists and not force:
        return WrittenFile(path.name, "kept", look(path.read_text(encoding="utf-8", errors="replace")))
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(text)
    return WrittenFile(path.name, "replaced" if exists else "written")


def _unignored(text: str) -> str:
    """Say what the user's own .gitignore lacks."""
    lines = {line.strip().strip("/") for line in text.splitlines()}
    missing = [name for name in (".env", ".singer-bridge/") if not lines & {name.strip("/"), f"{name.strip('/')}/*"}]
    return f"add to it: {', '.join(missing)}" if missing else ""
