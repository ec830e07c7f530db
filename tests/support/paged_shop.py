"""A project whose pipelines read a tap that waits for each page; each page is a commit."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from bridge.lake.log import Log
from bridge.lake.runs import RunRecord, read_runs
from bridge.lake.storage import open_storage
from tests.support.project import Project

TAP = Path(__file__).with_name("paged_tap.py")
LAST = 60
SECONDS = float(os.environ.get("SERVICE_SECONDS", "0.4"))


class PagedShop:
    """The project. `ids`, `records` and `head` are of its bucket."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("shop",), **more: Any) -> None:
        self.project, self.folder = Project(folder), folder
        (folder / "given").mkdir()
        self.tap = shutil.copy(TAP, folder)
        self.reads({"orders": {"last": LAST, "page": 2, "seconds": SECONDS}})
        self.write(**dict.fromkeys(names, more))

    def reads(self, streams: dict[str, Any]) -> None:
        (self.folder / "source.json").write_text(json.dumps({"streams": streams}))

    def write(self, **pipelines: dict[str, Any]) -> None:
        """Write bridge.yaml, with these keys beside those that all have."""
        tap = {"tap": [sys.executable, str(self.tap)], "select": ["*"]}
        config = {"given": str(self.folder / "given"), "source": str(self.folder / "source.json")}
        common = {"source": tap | {"config": config}, "destination": {"bucket": "lake"}, "commit": {"rows": 1}}
        service = {"max_runs": 2, "port": 0}
        text = json.dumps({"service": service, "pipelines": {name: common | more for name, more in pipelines.items()}})
        (self.folder / "bridge.yaml").write_text(text)

    def ids(self, name: str = "shop") -> list[int]:
        """The rows that a reader sees: of files without a leading dot."""
        folder = self.folder / "lake" / name / "orders"
        if not folder.exists():
            return []
        files = [str(path) for path in folder.glob("*.parquet")]
        return sorted(ds.dataset(files).to_table(["id"])["id"].to_pylist()) if files else []

    def records(self, name: str = "shop") -> list[RunRecord]:
        """The run records, newest first."""
        return list(read_runs(open_storage(str(self.folder / "lake"), None), name))

    def head(self, name: str = "shop") -> int:
        return Log(open_storage(str(self.folder / "lake"), None), name).latest()
