"""The masks of a pipeline as they act on a stream, given by all of its names: on SCHEMA, RECORDs and bookmarks."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.exact_json import dumps
from bridge.protocol.mask.lines import LineMasks, unreadable
from bridge.protocol.mask.personal import by_name, by_values, fields_of, values_of
from bridge.protocol.mask.rules import HASH, KEEP, members_of
from bridge.protocol.mask.schemas import masked_schema
from bridge.protocol.mask.values import ValueMasks, text_of

_ID = b"singer-bridge: which key is it?"


@dataclass(slots=True)
class Masks:
    """The masks of a pipeline: `mask` and `mask_key` of its settings."""

    masks: Mapping[str, str]
    key: str
    _streams: dict[tuple[str, ...], LineMasks | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(action != KEEP for action in self.masks.values())

    def _of(self, names: Sequence[str]) -> LineMasks | None:
        """The masks of a stream; None if no mask is for it."""
        whole = tuple(names)
        if whole not in self._streams:
            members = members_of(self.masks, whole)
            self._streams[whole] = LineMasks(self.masks, self.key, whole, members) if members else None
        return self._streams[whole]

    def are_for(self, names: Sequence[str]) -> bool:
        """Whether a field of the stream may be masked."""
        return self._of(names) is not None

    def of(self, names: Sequence[str], member: str) -> str:
        """The mask of a record's member, or `keep`."""
        masks = self._of(names)
        return masks.members.of(member)[0] if masks else KEEP

    def schema(self, names: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
        """The JSON Schema of the stream's masked records; the same one where nothing is masked."""
        masks = self._of(names)
        return masked_schema(schema, masks.members) if masks else schema

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
        return str(ValueMasks(self.key).masked(text, HASH, ""))

    @staticmethod
    def noise(line: bytes) -> bytes:
        """A text for a line that is no message, with nothing of it."""
        return unreadable(len(line))

    @staticmethod
    def shown_by(mark: Any, fields: Collection[str]) -> str:
        """The first of these fields whose value a bookmark shows; empty if it shows none."""
        return next(_shown(mark, fields), "")

    def unmet(self, names: Sequence[str], fields: Collection[str]) -> list[str]:
        """The globs that name a member of the stream which is none of these fields."""
        folded, unmet = {name.casefold() for name in fields}, list[str]()
        for glob in self.masks:
            for name in names:
                rest = glob.casefold().removeprefix(f"{name.casefold()}.").partition(".")[0]
                if glob.casefold().startswith(f"{name.casefold()}.") and "*" not in rest and rest not in folded:
                    unmet.append(glob)
        return unmet

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
            if mask and not self._is_decided(names, path.split(".")):
                proposed[f"{names[-1]}.{path}"] = HASH if path in keys else mask
        return proposed

    def _is_decided(self, names: Sequence[str], path: Sequence[str]) -> bool:
        """Whether a glob is for the field at this path, or for one above it."""
        members = members_of(dict.fromkeys(self.masks, HASH), names)
        for name in path:
            if members is None:
                return False
            action, members = members.of(name)
            if action != KEEP:
                return True
        return False

    @property
    def facts(self) -> dict[str, Any]:
        """The masks for a run's record: the globs, and a text that tells keys apart and gives none away."""
        hashes = HASH in self.masks.values()
        key = hmac.new(self.key.encode("utf-8", "surrogateescape"), _ID, "sha256").hexdigest()[:16] if hashes else ""
        return {"key": key, "rules": dict(self.masks)}

    def warnings(self) -> Iterator[str]:
        """Warnings about values, for the operator."""
        for names, masks in self._streams.items():
            for place, count in (masks.values.yearless if masks else {}).items():
                yield f"{names[-1]}: {count} value(s) of {place} have no year that can be told, so they are null"


def _shown(mark: Any, fields: Collection[str]) -> Iterator[str]:
    if isinstance(mark, list):
        for one in mark:
            yield from _shown(one, fields)
    elif isinstance(mark, dict):
        for name, value in mark.items():
            if name in fields and value is not None:
                yield name
            yield from _shown(value, fields)
