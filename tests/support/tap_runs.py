"""Whole runs of the pipeline `p`: real processes of a tap, a real load, everything but Spark.

A test takes the fixture `without_spark`, too.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from bridge.lake.log import Log, Snapshot
from bridge.lake.storage import Storage, open_storage
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.tables import INTEGER

SENDS = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
"""The program of a tap that sends a file, whatever its STATE is."""
RESUMES = """
import json, sys
given = json.load(open(sys.argv[sys.argv.index("--state") + 1])) if "--state" in sys.argv else {}
open(sys.argv[1] + ".given", "w").write(json.dumps(given))
marks = given.get("bookmarks", {})
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message["type"] == "EXIT":
        sys.exit(3)
    mark = marks.get(message.get("stream"), {}).get("replication_key_value") or 0
    if message["type"] != "RECORD" or message["record"]["id"] > mark:
        print(line, end="", flush=True)
"""
"""The program of a tap that leaves out rows up to its bookmarks."""
_PAGED = Path(__file__).with_name("paged_tap.py")


def values(state: Any) -> dict[str, int]:
    """The bookmarks of a STATE."""
    return {s: mark["replication_key_value"] for s, mark in (state or {}).get("bookmarks", {}).items()}


def upto(last: int) -> list[int]:
    return list(range(1, last + 1))


def schema(stream: str, column: Any = INTEGER, *, resumes: bool = True) -> dict[str, Any]:
    """A SCHEMA with a column `v`; a replication key unless the tap has none."""
    properties = {"id": {"type": "integer"}, "v": column}
    facts = {"bookmark_properties": ["id"]} if resumes else {}
    return {"type": "SCHEMA", "stream": stream, "schema": {"properties": properties}, "key_properties": []} | facts


def state(**marks: Any) -> dict[str, Any]:
    """A STATE with these bookmarks; a number is a replication key's value."""
    return {"type": "STATE", "value": {"bookmarks": {stream: at(mark) for stream, mark in marks.items()}}}


def at(mark: Any) -> Any:
    return {"replication_key": "id", "replication_key_value": mark} if isinstance(mark, int) else mark


def outcome(result: Result) -> tuple[str, int]:
    return result.status, result.error.exit_code if result.error else 0


class TapRuns:
    """The pipeline, with a commit at each STATE. `settings` are further keys in bridge.yaml, for all next runs."""

    name = "p"

    def __init__(self, root: Path, source: dict[str, Any]) -> None:
        self.root, self.uri, self.source = root, str(root / "lake"), source
        self.settings: dict[str, Any] = {}

    def pipeline(self, **settings: Any) -> Pipeline:
        """The settings of a run: those of all, and its own."""
        common = {"name": self.name, "destination": {"bucket": self.uri}, "commit": {"rows": 1}}
        keys = self.settings | settings
        return Pipeline.model_validate(common | keys | {"source": self.source | keys.get("source", {})})

    def prepared(self, asked: Request, **settings: Any) -> Run:
        """A run that has not begun."""
        return Run(self.pipeline(**settings), asked, self.root / "home")

    @property
    def storage(self) -> Storage:
        return open_storage(self.uri)

    @property
    def log(self) -> Log:
        return Log(self.storage, self.name)

    @property
    def view(self) -> Snapshot:
        return self.log.snapshot(self.log.latest())

    def log_ids(self, stream: str) -> list[int]:
        """The rows of the files that the log names, as DuckDB reads them."""
        table = self.view.tables.get(stream)
        if not table or not table.files:
            return []
        files = [f"{self.uri}/{table.folder}/{name}" for name in table.files]
        return [row[0] for row in duckdb.sql(f"select id from read_parquet({files}) order by id").fetchall()]


class SentRuns(TapRuns):
    """The pipeline whose tap sends what `run` is given."""

    def __init__(self, root: Path, program: str = SENDS) -> None:
        """`program` is the tap's; its argument is the file with what to send."""
        self.sent = root / "sent"
        super().__init__(root, {"tap": [sys.executable, "-c", program, str(self.sent)], "discover": "never"})

    def run(self, *messages: Any, asked: Request | None = None, catalog: Any = None, **settings: Any) -> Result:
        """Run to the end; a text is a line as it is, and the messages of a list come one after another."""
        if catalog:
            (self.root / "catalog.json").write_text(json.dumps(catalog))
            settings["source"] = {"catalog": str(self.root / "catalog.json")}
        lines = [one for each in messages for one in (each if isinstance(each, list) else [each])]
        self.sent.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return self.prepared(asked or Request(), **settings).execute()


class ResumingRuns(SentRuns):
    """A pipeline whose tap sends what is listed, but for rows up to its bookmarks; the stream `a` may be held back."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, RESUMES)
        self.settings = {"streams": {"a": {"on_error": "hold"}}}

    @property
    def marks(self) -> dict[str, int]:
        return values(self.view.state)

    @property
    def given(self) -> dict[str, int]:
        """The bookmarks that the tap was started with."""
        return values(json.loads((self.root / "sent.given").read_text()))


class PagedRuns(TapRuns):
    """The pipeline of the paged tap, which sends `streams` from where its STATE is."""

    def __init__(self, root: Path) -> None:
        self.tap = Path(shutil.copy(_PAGED, root))  # by its path no process is taken for that of another test
        self.given = root / "given"
        self.given.mkdir()
        self.config = {"given": str(self.given), "source": str(root / "source.json")}
        super().__init__(root, {"tap": [sys.executable, str(self.tap)], "config": self.config, "select": ["*"]})
        self.streams: dict[str, dict[str, Any]] = {}
        self.habits: dict[str, Any] = {}
        """How the tap behaves, whatever the stream."""
        self.stop: Callable[[Run], None] | None = None

    def run(self, parallelism: Any = 2, **asked: Any) -> Result:
        """Run to the end, with so many processes of the tap."""
        (self.root / "source.json").write_text(json.dumps(self.habits | {"streams": self.streams}))
        for path in self.given.iterdir():
            path.unlink()
        parallel = self.settings.get("source", {}) | {"parallelism": parallelism}
        run = self.prepared(Request(**{"refresh_catalog": True} | asked), source=parallel)
        watcher = threading.Thread(target=self.stop, args=(run,)) if self.stop else None
        if watcher:
            watcher.start()
        result = run.execute()
        if watcher:
            watcher.join()
        return result

    def ids(self, stream: str) -> list[int]:
        """The rows, as DuckDB finds them in the folder."""
        if not Path(self.uri, "p", stream).exists():
            return []
        files = f"{self.uri}/p/{stream}/**/*.parquet"
        return [row[0] for row in duckdb.sql(f"select id from read_parquet('{files}') order by id").fetchall()]

    @property
    def groups(self) -> dict[str, Any]:
        """Where each process's STATE stands: by its streams, the value of each bookmark in it."""
        return {"+".join(group.streams): values(group.state) for group in self.view.pipeline_state.per_process or ()}

    @property
    def alive(self) -> list[str]:
        """Processes of the tap that are left, of this pipeline's runs."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += [path.parent.name] if bytes(self.tap) in path.read_bytes() else []
        return found

    def was_given(self) -> dict[str, Any]:
        """What each process was started with, by its first stream."""
        return {path.stem: values(json.loads(path.read_text())) for path in sorted(self.given.iterdir())}
