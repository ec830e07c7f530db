"""The pipeline `p` without Spark, and what its log says of rejects."""

from __future__ import annotations

from typing import Any

from bridge.exact_json import dumps
from bridge.lake.log import Log, Snapshot
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.rejects.replay import Replayed, replay
from bridge.load.maintain.rejects.survey import Criteria, RejectGroup, find, groups, read
from tests.support.pipe import Found, Pipe

INT = {"type": ["null", "integer"]}
WIDE = {"type": ["null", "integer"], "maximum": 10**30}
BIG = 10**20
"""Does not fit `INT`, and fits `WIDE`."""


def wire(*messages: dict[str, Any]) -> bytes:
    return b"".join(dumps(message) + b"\n" for message in messages)


def schema(stream: str = "s", *, n: dict[str, Any] = INT, bookmarks: bool = True) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "n": n}
    message = {"type": "SCHEMA", "stream": stream, "schema": {"properties": properties}, "key_properties": []}
    return message | ({"bookmark_properties": ["id"]} if bookmarks else {})


def record(number: Any, n: Any = 0, stream: str = "s", **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": {"id": number, "n": n}, **more}


def state(number: int, stream: str = "s") -> dict[str, Any]:
    return {
        "type": "STATE",
        "value": {"bookmarks": {stream: {"replication_key": "id", "replication_key_value": number}}},
    }


class Shelf(Pipe):
    """A pipeline, and what its log says of rejects."""

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(self.lake)

    @property
    def log(self) -> Log:
        return Log(self.storage, "p")

    def view(self) -> Snapshot:
        return self.log.snapshot(self.log.head())

    def say(self, *messages: dict[str, Any], **settings: Any) -> Found:
        return self.load(wire(*messages), **settings)

    def listed(self, **wanted: Any) -> list[RejectGroup]:
        which = Criteria(**wanted)
        return groups(find(self.storage, "p", self.view(), which), which)

    def kept(self, **wanted: Any) -> list[dict[str, Any]]:
        """What `rejects show` reads."""
        return [
            reject
            for file in find(self.storage, "p", self.view(), Criteria(**wanted))
            for reject in read(self.storage, file)
        ]

    def replay(self, **wanted: Any) -> Replayed:
        return replay(self.storage, self.pipeline(), Criteria(**wanted))
