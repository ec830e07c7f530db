"""Builds the reader with Rust's cargo, which needs no crate from elsewhere, and puts it into the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

_HINT = (
    "singer-bridge-reader is written in Rust: install cargo (https://rustup.rs, or Debian's package cargo), or leave "
    "it out: singer-bridge works without it"
)


def _platform() -> str:
    """The tag of this machine's C library: installers refuse the wheel where that is older. `linux_*` would not say."""
    tags = list(platform_tags())
    return next((tag for tag in tags if not tag.startswith("linux_")), tags[0])


class ReaderBuild(BuildHookInterface[Any]):
    """A wheel for this platform and any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile."""
        cargo = shutil.which("cargo")
        if cargo is None:
            raise SystemExit(_HINT)
        self._folder = tempfile.TemporaryDirectory()
        subprocess.run(
            [cargo, "build", "--release", "--offline", "--quiet", "--target-dir", self._folder.name],
            cwd=self.root,
            check=True,
        )
        ending = "dylib" if sys.platform == "darwin" else "so"
        library = Path(self._folder.name, "release", f"libsinger_bridge_reader.{ending}")
        build_data["force_include"][str(library)] = f"singer_bridge_reader/reader.{ending}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete what was built on the way."""
        self._folder.cleanup()
