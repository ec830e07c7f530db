"""Where a `$ref` of a SCHEMA leads: to a place of the document, to an anchor, or to the document by its own `$id`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from jsonpointer import JsonPointerException, resolve_pointer


class References:
    """The targets of one document. Nothing is ever fetched."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._named: dict[str, Any] | None = None

    def target(self, reference: str) -> Any:
        """The value that a reference leads to; None if it leads to nothing, or elsewhere."""
        base, fragment = urldefrag(reference)
        document = self._root if not base else self._names().get(self._absolute(base))
        if document is None:
            return None
        fragment = unquote(fragment)
        if not fragment:
            return document
        if not fragment.startswith("/"):
            return self._names().get(f"#{fragment}")
        try:
            return resolve_pointer(document, fragment)
        except JsonPointerException:
            return None

    def _absolute(self, reference: str) -> str:
        name = self._root.get("$id")
        return urljoin(name, reference).rstrip("#") if isinstance(name, str) else reference

    def _names(self) -> dict[str, Any]:
        """All schemas that have a name, by it; an anchor begins with `#`."""
        if self._named is None:
            self._named = {name: node for node in _nodes(self._root) for name in self._names_of(node)}
        return self._named

    def _names_of(self, node: dict[str, Any]) -> Iterator[str]:
        for word in ("$id", "id"):
            if isinstance(name := node.get(word), str):
                yield name if name.startswith("#") else self._absolute(name)
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(word), str):
                yield f"#{name}"


def _nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the document, the root last: of two with one name the outer one counts."""
    waiting, reached = [root], list[dict[str, Any]]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            reached.append(node)
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    yield from reversed(reached)
