"""`system_tables`, at the top of bridge.yaml: where the system tables are kept as Parquet tables of the lake."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.text.tree import Expand, Node, Unknown, resolve
from bridge.settings.values.checked import table_path

DEFAULT = "_bridge"


@dataclass(frozen=True)
class SystemTables:
    """A folder inside each pipeline's bucket, and where it is written."""

    path: str
    node: Node

    def clash(self, table_root: str) -> SettingsError | None:
        """The error for a pipeline whose tables would lie in that folder, or around it; None if it is beside them."""
        one, other = f"{self.path}/".casefold(), f"{table_root}/".casefold()  # some file systems ignore case
        if not (one.startswith(other) or other.startswith(one)):
            return None
        hint = f"choose another folder of the bucket, such as {DEFAULT}"
        return self.node.error("the system tables cannot be where a pipeline's tables are", hint, tables=table_root)


def read_system_tables(node: Node, expand: Expand) -> SystemTables:
    """The section, a mapping without unknown keys. Raises `SettingsError`."""
    document = resolve(node, expand)
    for _, error in document.problems:
        raise error
    path, place = document.data.get("path", DEFAULT), document.nodes.get(("path",), node)
    if not isinstance(path, str):
        raise place.error("must be text", f"such as {DEFAULT}")
    if isinstance(path, Unknown):
        raise place.error("no ${cmd:...} here", f"write the folder, such as {DEFAULT}")
    if "{" in path:
        raise place.error("has no placeholders", "each pipeline has files of its own there")
    try:
        return SystemTables(table_path(path), place)
    except PydanticCustomError as error:
        facts = error.context or {}
        raise place.error(str(facts["text"]), str(facts["hint"])) from None
