"""How a bucket of Google's is set up: for `doctor`. No run depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bridge.lake.storage.gcs.store import GcsStore

_OF_OLD_VERSIONS = ("numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore")


@dataclass(frozen=True, slots=True)
class Rule:
    """A lifecycle rule that deletes objects: the current ones, or `noncurrent` only those that were replaced."""

    prefixes: tuple[str, ...]
    """It applies to objects that begin with one of these; none: to all."""
    noncurrent: bool

    def covers(self, prefix: str) -> bool:
        """Whether it may apply to objects below a prefix."""
        return not self.prefixes or any(prefix.startswith(one) or one.startswith(prefix) for one in self.prefixes)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a bucket's owner has made."""

    location: str
    versioning: bool
    soft_delete: timedelta
    """How long a deleted object is kept, and paid; zero: not at all."""
    retention: timedelta
    """How long no object can be deleted or replaced."""
    hold: bool
    """Whether new objects are held, so that they can be neither deleted nor replaced."""
    requester_pays: bool
    deletes: tuple[Rule, ...]


def settings(store: GcsStore) -> Settings:
    """Raises `LakeError` where they cannot be read: that needs storage.buckets.get."""
    bucket = store.bucket
    with store.explained("read the settings of", ""):
        bucket.reload(timeout=(10, 60))
    soft = bucket.soft_delete_policy.retention_duration_seconds or 0
    return Settings(
        location=str(bucket.location or ""),
        versioning=bool(bucket.versioning_enabled),
        soft_delete=timedelta(seconds=int(soft)),
        retention=timedelta(seconds=int(bucket.retention_period or 0)),
        hold=bool(bucket.default_event_based_hold),
        requester_pays=bool(bucket.requester_pays),
        deletes=tuple(_deleting(bucket)),
    )


def _deleting(bucket: Any) -> Iterator[Rule]:
    for rule in bucket.lifecycle_rules:
        condition = rule.get("condition", {})
        # Rules for kinds of names that a lake does not have, such as by suffix, are taken to apply: a person decides.
        old = condition.get("isLive") is False or any(name in condition for name in _OF_OLD_VERSIONS)
        if rule.get("action", {}).get("type") == "Delete":
            yield Rule(tuple(condition.get("matchesPrefix", ())), old)
