"""A folder with a bridge.yaml, and the real command in it: each is a process, as a user has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.shell import Done

SMOKE = {"tap": "tap-smoke", "config": "tap.json"}
"""The source of a pipeline whose tap sends what `Project.sends` lists."""


def stream(name: str = "users", records: int = 100, **settings: Any) -> dict[str, Any]:
    """A stream of tap-smoke."""
    return {"name": name, "records": records, **settings}


def with_programs() -> dict[str, str]:
    """This process's environment, with the taps on PATH."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@dataclass
class Project:
    """A folder, the environment of its commands, and all that they printed."""

    folder: Path
    environ: dict[str, str] = field(default_factory=with_programs)
    printed: str = ""

    def write(self, **pipelines: dict[str, Any]) -> None:
        """Write bridge.yaml with these pipelines; YAML reads JSON."""
        (self.folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))

    def sends(self, *streams: dict[str, Any], every: int = 100) -> None:
        """Let tap-smoke send these streams, with a STATE after so many records."""
        config = {"seed": 1, "state": {"every": every}, "streams": streams}
        (self.folder / "tap.json").write_text(json.dumps(config))

    def command(self, *words: str, timeout: float = 600) -> Done:
        """Type `singer-bridge` with these words, whatever its exit code."""
        argv = [sys.executable, "-m", "bridge", *words]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        self.printed += done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def output(self, *words: str, code: int = 0) -> str:
        """Type these words, which must end with `code`; return stdout, or stderr of a failure."""
        done = self.command(*words)
        assert done.code == code, done.err + done.out
        return done.err if code else done.out

    def run(self, *words: str) -> dict[str, Any]:
        """Run the pipeline, which must succeed; return what `run --json` says."""
        result = json.loads(self.output("run", *words, "--json"))
        assert result["status"] == "success"
        return dict(result)
