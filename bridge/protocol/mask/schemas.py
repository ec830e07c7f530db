"""The SCHEMA of masked records: what a mask leaves is text, of `year` a number, and what is dropped is no property."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.protocol.mask.rules import DROP, KEEP, YEAR, Members
from bridge.protocol.schema.references import References

_CHOICES = ("anyOf", "oneOf", "allOf")


def masked_schema(schema: dict[str, Any], members: Members) -> dict[str, Any]:
    """The JSON Schema of records whose values are masked; the same one where nothing is."""
    masked: dict[str, Any] = _Masked(References(schema)).node(schema, members, ())
    return masked


class _Masked:
    """Goes through one document. A reference is followed where something below it is masked, once on each way."""

    def __init__(self, references: References) -> None:
        self._references = references

    def node(self, node: Any, members: Members, via: tuple[str, ...]) -> Any:
        """A value's schema with what is below it masked."""
        if not isinstance(node, dict):
            return node
        if isinstance(name := node.get("$ref"), str):
            return self._referred(node, name, members, via)
        changed = dict(node)
        if isinstance(properties := node.get("properties"), dict):
            self._properties(changed, properties, members, via)
        if "items" in node:
            items = node["items"]
            each = [self.node(one, members, via) for one in items] if isinstance(items, list) else None
            changed["items"] = self.node(items, members, via) if each is None else each
        for word in _CHOICES:
            if isinstance(node.get(word), list):
                changed[word] = [self.node(one, members, via) for one in node[word]]
        return node if changed == node else changed

    def _referred(self, node: dict[str, Any], name: str, members: Members, via: tuple[str, ...]) -> Any:
        target = self._references.target(name) if name not in via else None
        if not isinstance(target, dict):
            return node
        masked = self.node(target, members, (*via, name))
        return node if masked == target else {**masked, **{key: node[key] for key in node if key != "$ref"}}

    def _properties(
        self, changed: dict[str, Any], properties: dict[str, Any], members: Members, via: tuple[str, ...]
    ) -> None:
        masked, dropped = {}, set[str]()
        for name, one in properties.items():
            action, below = members.of(name)
            if action == DROP:
                dropped.add(name)
            elif action == KEEP:
                masked[name] = self.node(one, below, via) if below else one
            else:
                masked[name] = _mask_of(one, action, self._facts(one, ()))
        changed["properties"] = masked
        if dropped and isinstance(required := changed.get("required"), list):
            changed["required"] = [name for name in required if name not in dropped]

    def _facts(self, node: Any, via: tuple[str, ...]) -> set[str]:
        """The types that a value may have, by any of its choices and references."""
        types = set[str]()
        for one in self._nodes(node, via):
            declared = one.get("type")
            types |= {
                name for name in (declared if isinstance(declared, list) else [declared]) if isinstance(name, str)
            }
        return types

    def _nodes(self, node: Any, via: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        if not isinstance(node, dict):
            return
        yield node
        name = node.get("$ref")
        if isinstance(name, str) and name not in via:
            yield from self._nodes(self._references.target(name), (*via, name))
        for word in _CHOICES:
            for one in node.get(word) or () if isinstance(node.get(word), list) else ():
                yield from self._nodes(one, via)


def _mask_of(node: Any, action: str, types: set[str]) -> dict[str, Any]:
    """The schema of a masked value: a text or a year, or an array of them; null where it may be null."""
    name, is_nullable = ("integer", True) if action == YEAR else ("string", "null" in types or not types)
    nulls = ["null"] if is_nullable else []
    item = {"type": [*nulls, name]}
    scalars = types - {"null", "array"}
    masked: dict[str, Any] = item
    if "array" in types:
        whole = {"type": [*nulls, "array"], "items": {"type": ["null", name]}}
        masked = {"anyOf": [whole, item]} if scalars else whole
    texts = {key: node[key] for key in ("title", "description") if isinstance(node, dict) and key in node}
    return masked | texts
