"""The masks of a pipeline as they act on a stream, given by all of its names: on SCHEMA, RECORDs and bookmarks."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.exact_json import dumps
from bridge.protocol.mask.lines import LineMasks, unreadable
from bridge.protocol.mask.personal import by_name, by_values, fields_of, values_of
from bridge.protocol.mask.rules import HASH, KEEP, Members, folded, members_of
from bridge.protocol.mask.schemas import masked_schema
from bridge.protocol.mask.values import ValueMasks, text_of

_ID = b"singer-bridge: which key is it?"
_WORDS = frozenset(
    "partitions context replication_key replication_key_value replication_key_signpost starting_replication_value "
    "progress_markers version last_pk_fetched max_pk_values initial_full_table_complete lsn xmin Note".split()
)
"""Words of bookmarks, which `customers.*` does not mean."""


@dataclass(slots=True)
class Masks:
    """The masks of a pipeline: `mask` and `mask_key` of its settings."""

    masks: Mapping[str, str]
    key: str
    _streams: dict[tuple[str, ...], LineMasks | None] = field(default_factory=dict)
    _values: ValueMasks = field(init=False)

    def __post_init__(self) -> None:
        self._values = ValueMasks(self.key)

    def __bool__(self) -> bool:
        return any(action != KEEP for action in self.masks.values())

    def _of(self, names: Sequence[str]) -> LineMasks | None:
        """The masks of a stream; None if no mask is for it."""
        whole = tuple(names)
        if whole not in self._streams:
            members = members_of(self.masks, whole)
            self._streams[whole] = LineMasks(self.key, members) if members else None
        return self._streams[whole]

    def are_for(self, names: Sequence[str]) -> bool:
        """Whether a field of the stream may be masked."""
        return self._of(names) is not None

    def of(self, names: Sequence[str], path: str) -> str:
        """The mask of the field at a dotted path, or `keep`."""
        masks = self._of(names)
        return masks.members.of(path) if masks else KEEP

    def masked_schema(self, names: Sequence[str], schema: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """The JSON Schema of the stream's masked records, and the names of fields that it masks, at any depth.

        The same schema where nothing is masked.
        """
        masks = self._of(names)
        return masked_schema(schema, masks.members) if masks else (schema, set())

    def fields(self, names: Sequence[str], schema: Any) -> dict[str, str]:
        """The masks of the fields that a JSON Schema declares, by their dotted paths."""
        masks = self._of(names)
        masked = {path: masks.members.of(path) for path in fields_of(schema)} if masks else {}
        return {path: action for path, action in masked.items() if action != KEEP}

    def lines(self, names: Sequence[str], data: bytes, prefix: bytes | None) -> bytes:
        """Whole RECORD lines, masked. Those that cannot be read become lines that say so, and are rejects."""
        masks = self._of(names)
        return masks.masked(data, prefix) if masks else data

    @staticmethod
    def text_of(value: Any) -> str:
        """The text of a value of parsed JSON that is neither an object nor an array, as it is hashed."""
        return text_of(value)

    def code(self, *texts: str) -> str:
        """The code of a text, as `hash` stores it; of several texts that of their JSON array."""
        text = texts[0] if len(texts) == 1 else dumps(list(texts)).decode()
        return str(self._values.masked(text, HASH, ""))

    @staticmethod
    def noise(line: bytes) -> bytes:
        """A text for a line that is no message, with nothing of it."""
        return unreadable(len(line))

    def shown_by(self, names: Sequence[str], mark: Any, fields: Collection[str]) -> str:
        """The first masked field of a stream whose value a bookmark shows; empty if it shows none.

        `fields`: names of masked fields of other streams, of which a child's bookmark may show values, too. It goes by
        the names in it: of members, and those that are a `replication_key`.
        """
        masks = self._of(names)
        return next(_shown(mark, masks.members if masks else None, {folded(name) for name in fields}, inside=False), "")

    @property
    def unmet(self) -> list[str]:
        """The globs that no field met so far; not those that keep."""
        met = set().union(*(masks.members.met for masks in self._streams.values() if masks))
        return [glob for glob, action in self.masks.items() if action != KEEP and glob not in met]

    def proposed(
        self, names: Sequence[str], schema: Any, keys: Collection[str], records: Iterable[Mapping[str, Any]]
    ) -> dict[str, str]:
        """Masks for fields that look personal, by `STREAM.FIELD`: by their names, and by the values in these records.

        None for a field for which the settings have a mask, or `keep`. The stream's `keys` can only be hashed.
        """
        values: dict[str, list[Any]] = {}
        for record in records:
            values_of(record, lambda field, value: values.setdefault(field, []).append(value))
        proposed = {}
        for path in dict.fromkeys((*fields_of(schema), *values)):
            mask = by_name(path.rpartition(".")[2]) or by_values(values.get(path, ()))
            is_name = by_values(path.split(".")) is None  # else names are data, and so not to be shown
            if mask and is_name and not self._is_decided(names, path.split(".")):
                proposed[f"{names[-1]}.{path}"] = HASH if path in keys else mask
        return proposed

    def _is_decided(self, names: Sequence[str], path: Sequence[str]) -> bool:
        """Whether a glob is for the field at this path, or for one above it."""
        members = members_of(dict.fromkeys(self.masks, HASH), names)
        above = [".".join(path[:end]) for end in range(1, len(path) + 1)]
        return members is not None and any(members.of(one) != KEEP for one in above)

    @property
    def facts(self) -> dict[str, Any]:
        """The masks for a run's record: the globs, and a text that tells keys apart and gives none away."""
        hashes = HASH in self.masks.values()
        key = hmac.new(self.key.encode("utf-8", "surrogatepass"), _ID, "sha256").hexdigest()[:16] if hashes else ""
        return {"key": key, "rules": dict(self.masks)}

    def warnings(self) -> Iterator[str]:
        """Warnings about values, for the operator."""
        for names, masks in self._streams.items():
            for place, count in (masks.values.yearless if masks else {}).items():
                yield f"{names[-1]}: {count} value(s) of {place} have no year that can be told, so they are null"


def _shown(mark: Any, members: Members | None, fields: Collection[str], *, inside: bool) -> Iterator[str]:
    """`inside`: of a partition's context, which has columns of the parent."""
    if isinstance(mark, list):
        for one in mark:
            yield from _shown(one, members, fields, inside=inside)
    elif isinstance(mark, dict):
        key = mark.get("replication_key")
        if (
            members
            and isinstance(key, str)
            and members.of(key) != KEEP
            and mark.get("replication_key_value") is not None
        ):
            yield key
        for name, value in mark.items():
            is_own = members is not None and name not in _WORDS and members.of(name) != KEEP
            if value is not None and (is_own or (inside and folded(name) in fields)):
                yield name
            yield from _shown(value, members, fields, inside=inside or name == "context")
