"""Extensions of DuckDB from PyPI, where a tool would download them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .source import Source
from .system import System


class ExtendedDuckdb(System):
    """A system whose DuckDB needs extensions: packages of its environment, put where DuckDB looks for them."""

    extensions: tuple[str, ...]

    def set_up(self, source: Source) -> None:
        """The folder is below HOME."""
        assert self.environment
        for name in self.extensions:
            for file in self.environment.folder.glob(f"lib/*/site-packages/duckdb_extension_{name}/extensions/*/*"):
                place = source.folder / ".duckdb" / "extensions" / file.parent.name / "linux_amd64" / file.name
                place.parent.mkdir(parents=True, exist_ok=True)
                if not place.exists():
                    place.symlink_to(file)

    def select(self, folder: Path, query: str) -> list[int | None]:
        """The ids that a query finds, with the DuckDB of the environment and these extensions."""
        program = "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall()))"
        command = ["python", "-c", program, query]
        done = subprocess.run(command, cwd=folder, env=self.environ(folder), capture_output=True, text=True, check=True)
        return [number for (number,) in json.loads(done.stdout)]
