"""Stream maps and flattening by the Singer SDK's own mapper, record by record: slow, but just as the SDK does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from singer_sdk.mapper import PluginMapper, RemoveRecordTransform, SameRecordTransform
from singer_sdk.singerlib.json import deserialize_json, serialize_json

from bridge.errors import DataError


class Mapped:
    """Rewrites lines: `Mapped(mapper)(chunks)` yields what the maps make of the messages in the chunks.

    A line that is no message, or has no stream, stays as it is. A stream that a map renames or doubles has its bookmark
    under the tap's name, so its rows are committed at the end, not at a STATE in between.
    """

    def __init__(self, mapper: PluginMapper) -> None:
        self._mapper = mapper

    def __call__(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the rewritten chunks, each of whole lines but the last."""
        rest = b""
        for chunk in chunks:
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            yield b"".join(self._line(line) for line in lines)
        if rest:
            yield rest  # the tap ended in the middle of it

    def _line(self, line: bytes) -> bytes:
        try:
            message = deserialize_json(line)
            rewrite = None if self._untouched(message) else self._rewrites.get(str(message["type"]).upper())
        except (ValueError, TypeError, KeyError, RecursionError):
            rewrite = None
        if rewrite is None:
            return line + b"\n"
        try:
            return b"".join(serialize_json(made).encode() + b"\n" for made in rewrite(self, message))
        except DataError:
            raise
        except Exception as error:  # a map's expression may raise anything
            text = f"{type(error).__name__}: {error}"[:200]
            hint = "correct stream_maps, or what the tap sends"
            raise DataError(f"a stream map failed: {text}", hint=hint, stream=message.get("stream")) from error

    def _untouched(self, message: dict[str, Any]) -> bool:
        """Whether no map concerns the stream, so that its lines stay as they are."""
        maps = self._mapper.stream_maps.get(message.get("stream", ""), ())
        plain = all(isinstance(one, SameRecordTransform) and not one.flattening_enabled for one in maps)
        return bool(maps) and plain and str(message["type"]).upper() != "SCHEMA"

    def _schema(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        name, schema, keys = message["stream"], message["schema"], message.get("key_properties")
        if not isinstance(schema.get("properties"), dict):
            yield message  # the load refuses it
            return
        self._mapper.register_raw_stream_schema(name, schema, keys)
        for one in self._maps(message):
            bookmarks = [key for key in message.get("bookmark_properties") or () if _has(one.transformed_schema, key)]
            yield message | {
                "stream": one.stream_alias,
                "schema": one.transformed_schema,
                "key_properties": one.transformed_key_properties or [],
                "bookmark_properties": bookmarks,
            }

    def _record(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if message["stream"] not in self._mapper.stream_maps:
            yield message  # it came before its SCHEMA: the load refuses it
            return
        for one in self._maps(message):
            record = one.transform(dict(message["record"]))
            if record is not None:
                yield message | {"stream": one.stream_alias, "record": record}

    def _activate(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if message["stream"] not in self._mapper.stream_maps:
            yield message
            return
        for one in self._maps(message):
            yield message | {"stream": one.stream_alias}

    def _batch(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if message["stream"] in self._mapper.stream_maps and not self._maps(message):
            return iter(())  # the stream is left out
        hint = "leave batch_config out of the tap's settings, or stream_maps and flattening out of the target's"
        raise DataError("the rows of a BATCH cannot be mapped", hint=hint, stream=message.get("stream"))

    def _maps(self, message: dict[str, Any]) -> list[Any]:
        maps = self._mapper.stream_maps[message["stream"]]
        return [one for one in maps if not isinstance(one, RemoveRecordTransform)]

    _rewrites: ClassVar[dict[str, Callable[[Mapped, dict[str, Any]], Iterator[dict[str, Any]]]]] = {
        "SCHEMA": _schema,
        "RECORD": _record,
        "ACTIVATE_VERSION": _activate,
        "BATCH": _batch,
    }


def _has(schema: dict[str, Any], name: str) -> bool:
    return name in schema.get("properties", {})
