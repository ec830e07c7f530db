"""singer-bridge: run any Singer tap into a lakehouse, exactly once, on Spark.

**The promise.** A bookmark never leads its data, and no row that a committed STATE covers is in the lake twice. Kill
any process at any instant and run again: each record is there once, each bookmark is one that the tap itself said.

**The house**: eight wings, in the order of the flow. Each imports only those above it, and of those only the modules
that they list as their `DOORS` (ARCHITECTURE.md has the whole map):

```
settings  bridge.yaml      protocol  the wire: messages, schemas, JSON to Arrow
lake      what is in a bucket, and who may write it
load      one run: tap ──▶ messages ──▶ spool ──▶ Spark ──▶ Arrow ──▶ pending files ──▶ commit, with its STATE
read      tables at a commit      operate  verify, doctor, smoke, projects
serve     schedules, programs, orchestrators
cli       the command line
```

**The words.** *Segment*: consecutive RECORD lines of one stream under one schema. *Batch*: the segments handed to Spark
at once. *Bundle*: one worker's share of a batch. *Spill*: rows of an upsert that wait in the spool. *Reject*: a record
that does not fit its schema, kept with the reason. *Pending*: durable, not visible yet.
*Barrier*: a STATE at which we commit, or the tap's clean end. *Epoch*: the messages between two barriers. *Held*: rows
that stay pending at a barrier, as the tap would send them again from there. *Staged*: rows that stay pending as their
overwrite is not complete.
*Commit*: the numbered record that makes files visible together with a STATE. *Head*: the last commit. *Fence*: an empty
commit that takes the number an older run may still want. *Generation*: the number of the head when a run opened, part
of the name of every file that it writes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge import errors
    from bridge.errors import BridgeError
    from bridge.lake.state.store import StateStore
    from bridge.load.run.result import Result
    from bridge.read.query.lake import Lake
    from bridge.read.query.view import View, ViewRow
    from bridge.serve.launch.project import Project
    from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options

__all__ = [
    "AzureOptions",
    "BridgeError",
    "GcsOptions",
    "Lake",
    "Project",
    "Result",
    "S3Options",
    "StateStore",
    "View",
    "ViewRow",
    "__version__",
    "errors",
]

__version__ = "0.1.0"

_PUBLIC = {
    "AzureOptions": "bridge.settings.values.stores",
    "GcsOptions": "bridge.settings.values.stores",
    "BridgeError": "bridge.errors",
    "Lake": "bridge.read.query.lake",
    "Project": "bridge.serve.launch.project",
    "Result": "bridge.load.run.result",
    "S3Options": "bridge.settings.values.stores",
    "StateStore": "bridge.lake.state.store",
    "View": "bridge.read.query.view",
    "ViewRow": "bridge.read.query.view",
}


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: `import bridge` alone stays light."""
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name == "errors":
        return import_module("bridge.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_FORMER = {
    "bridge.orchestrate": "bridge.serve.orchestrate",
    "bridge.spark_source": "bridge.read.spark_source",
    "bridge.spark": "bridge.load.spark.jvm",  # for `python -m bridge.spark.archive_maker` in the build of an image
}
"""Names of modules that were public before they moved, and where they are now."""


class _FormerNames:
    """Import a module by a name that it had before.

    It comes first: in a clone the old folders may be left with compiled files, which Python takes for packages.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("bridge."):
            return None
        for former, present in _FORMER.items():
            if name == former or name.startswith(f"{former}."):
                loader: Any = _Alias(present + name[len(former) :])
                return ModuleSpec(name, loader, is_package=name == former)
        return None


class _Alias:
    """Make a module that has all names of another, which stands at `present`."""

    def __init__(self, present: str) -> None:
        self.present = present

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave that to Python."""

    def exec_module(self, module: ModuleType) -> None:
        names = vars(import_module(self.present))
        vars(module).update({name: value for name, value in names.items() if name not in vars(module)})

    def get_code(self, name: str) -> CodeType | None:
        """The code of a program that is started as `python -m name`."""
        loader: Any = import_module(self.present).__loader__
        code: CodeType | None = loader.get_code(self.present)
        return code


sys.meta_path.insert(0, _FormerNames())
