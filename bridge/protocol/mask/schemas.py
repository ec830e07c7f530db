"""The SCHEMA of masked records: what a mask leaves is text, of `year` a number, and what is dropped is no property."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.protocol.mask.rules import DROP, KEEP, YEAR, Members
from bridge.protocol.schema.references import References

_CHOICES = ("anyOf", "oneOf", "allOf")
_DEFINITIONS = ("definitions", "$defs")
_EXAMPLES = ("default", "example", "examples", "enum", "const")
_UNDECLARED = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_OF_RAW_VALUES = frozenset(
    "default example examples enum const additionalProperties unevaluatedProperties patternProperties propertyNames if "
    "then else not dependencies dependentSchemas dependentRequired minProperties maxProperties contains "
    "prefixItems".split()
)


def masked_schema(schema: dict[str, Any], members: Members) -> tuple[dict[str, Any], set[str]]:
    """The JSON Schema of records whose values are masked, and the names of the fields that it masks.

    The same schema where nothing is masked.
    """
    walk = _Masked(References(schema), members)
    masked: dict[str, Any] = walk.node(schema, "", ())
    for word in _DEFINITIONS:
        if word in masked:
            masked = {**masked, word: _without_values(masked[word], walk.names)}
    return masked, walk.names


class _Masked:
    """Goes through one document. A reference is followed where something below it is masked, once on each way."""

    def __init__(self, references: References, members: Members) -> None:
        self._references, self._members = references, members
        self.names: set[str] = set()

    def node(self, node: Any, place: str, via: tuple[str, ...]) -> Any:
        """A value's schema with what is below it masked; `place` is its dotted path with a dot behind it."""
        if not isinstance(node, dict):
            return node
        if isinstance(name := node.get("$ref"), str):
            return self._referred(node, name, place, via)
        changed = dict(node)
        if isinstance(properties := node.get("properties"), dict):
            self._properties(changed, properties, place, via)
        if "items" in node:
            items = node["items"]
            each = [self.node(one, place, via) for one in items] if isinstance(items, list) else None
            changed["items"] = self.node(items, place, via) if each is None else each
        for word in _CHOICES:
            if isinstance(node.get(word), list):
                changed[word] = [self.node(one, place, via) for one in node[word]]
        if changed == node and not any(isinstance(node.get(word), dict) for word in _UNDECLARED):
            return node
        # Rules about names that are not declared, and about values beside each other, were made for the raw ones.
        return {word: value for word, value in changed.items() if word not in _OF_RAW_VALUES}

    def _referred(self, node: dict[str, Any], name: str, place: str, via: tuple[str, ...]) -> Any:
        target = self._references.target(name) if name not in via else None
        if not isinstance(target, dict):
            return node
        masked = self.node(target, place, (*via, name))
        return node if masked == target else {**masked, **{key: node[key] for key in node if key != "$ref"}}

    def _properties(
        self, changed: dict[str, Any], properties: dict[str, Any], place: str, via: tuple[str, ...]
    ) -> None:
        masked, dropped = {}, set[str]()
        for name, one in properties.items():
            action = self._members.of(place + name)
            if action != KEEP:
                self.names.add(name)
            if action == DROP:
                dropped.add(name)
            elif action == KEEP:
                masked[name] = self.node(one, f"{place}{name}.", via)
            else:
                masked[name] = _mask_of(action, self._types(one, ()))
        changed["properties"] = masked
        if dropped and isinstance(required := changed.get("required"), list):
            changed["required"] = [name for name in required if name not in dropped]

    def _types(self, node: Any, via: tuple[str, ...]) -> set[str]:
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


def _mask_of(action: str, types: set[str]) -> dict[str, Any]:
    """The schema of a masked value: a text or a year, or an array of them; null where it may be null."""
    name, is_nullable = ("integer", True) if action == YEAR else ("string", "null" in types or not types)
    nulls = ["null"] if is_nullable else []
    item = {"type": [*nulls, name]}
    if "array" not in types:
        return item
    whole = {"type": [*nulls, "array"], "items": {"type": ["null", name]}}
    return {"anyOf": [whole, item]} if types - {"null", "array"} else whole


def _without_values(node: Any, names: set[str]) -> Any:
    """Definitions, to which unmasked fields may still refer, without what they say of values of these names."""
    if isinstance(node, list):
        return [_without_values(one, names) for one in node]
    if not isinstance(node, dict):
        return node
    rest = {word: one for word, one in node.items() if word not in _EXAMPLES}
    return {word: {} if word in names else _without_values(one, names) for word, one in rest.items()}
