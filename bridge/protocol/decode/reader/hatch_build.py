"""Builds the compiled reader with Rust's cargo, which needs no crate from elsewhere, into singer-bridge's own wheel.

Two environment variables decide. `SINGER_BRIDGE_READER`: `auto` (where cargo works; else the wheel is a pure one),
`yes`, `no`. `SINGER_BRIDGE_PLATFORM`: another platform's tag, one of `TARGETS`; this machine's own by default.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

TARGETS = {
    "manylinux_2_17_x86_64": ("zigbuild", "x86_64-unknown-linux-gnu", ".2.17"),
    "manylinux_2_17_aarch64": ("zigbuild", "aarch64-unknown-linux-gnu", ".2.17"),
    "macosx_11_0_x86_64": ("build", "x86_64-apple-darwin", ""),
    "macosx_11_0_arm64": ("build", "aarch64-apple-darwin", ""),
}
"""By a wheel's tag, what builds it, and Rust's name for it. zigbuild takes the oldest C library to run with."""
LIBRARY = "bridge/protocol/decode/reader.so"
"""Where the library is, in a wheel and in a clone; so on macOS, too."""
_WITHOUT = "without the compiled reader, so large loads are slower: {}; see docs/performance.md"


def _own_tag() -> str:
    """The tag of this machine's C library: installers refuse the wheel where that is older. `linux_*` would not say."""
    tags = list(platform_tags())
    return next((tag for tag in tags if not tag.startswith("linux_")), tags[0])


class ReaderBuild(BuildHookInterface[Any]):
    """A wheel for one platform and any Python 3, or a pure one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. Raises `SystemExit` if it is to be there, and cannot be built."""
        self._folder = tempfile.TemporaryDirectory()
        wanted = os.environ.get("SINGER_BRIDGE_READER", "auto")
        if wanted not in ("auto", "yes", "no"):
            raise SystemExit(f"SINGER_BRIDGE_READER is auto, yes or no, not {wanted!r}")
        platform = os.environ.get("SINGER_BRIDGE_PLATFORM", "")
        if platform and platform not in TARGETS:
            raise SystemExit(f"SINGER_BRIDGE_PLATFORM is one of {', '.join(TARGETS)}, not {platform!r}")
        in_clone = Path(self.root, LIBRARY)
        if version == "editable":
            in_clone.unlink(missing_ok=True)
        if wanted == "no":
            return
        built, problem = self._built(platform)
        if built is None:
            if wanted == "yes":
                raise SystemExit(problem)
            self.app.display_warning(_WITHOUT.format(problem))
        elif version == "editable":
            shutil.copyfile(built, in_clone)
        else:
            build_data["force_include"][str(built)] = LIBRARY
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform or _own_tag()}"

    def _built(self, platform: str) -> tuple[Path | None, str]:
        """The library for a platform, this machine's by default; or why there is none."""
        if shutil.which("cargo") is None:
            return None, "Rust's cargo is not on PATH (https://rustup.rs, or Debian's package cargo)"
        how, target, oldest = TARGETS.get(platform, ("build", "", ""))
        words = ["cargo", how, "--release", "--offline", "--quiet", "--target-dir", self._folder.name]
        words += ["--target", target + oldest] if target else []
        done = subprocess.run(
            words, cwd=Path(self.root, "bridge/protocol/decode/reader"), check=False, capture_output=True, text=True
        )
        ending = "dylib" if "darwin" in target or (not target and sys.platform == "darwin") else "so"
        if done.returncode:
            return None, f"cargo failed: {' '.join(done.stderr.split())[-300:]}"
        return Path(self._folder.name, target, "release", f"libsinger_bridge_reader.{ending}"), ""

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete what was built on the way."""
        self._folder.cleanup()
