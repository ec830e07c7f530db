"""What a run needs of a bucket of Google Cloud Storage: rights are tried, and the settings of the bucket looked up."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.durations import duration
from bridge.errors import LakeError
from bridge.findings import Check, Finding, fine, run_checks, warning
from bridge.lake.storage.gcs.clients import endpoint
from bridge.lake.storage.gcs.facts import Settings, settings
from bridge.lake.storage.gcs.store import GcsStore
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.objects.checks import object_checks


def gcs_checks(storage: ObjectStorage, further: list[Check]) -> list[Check]:
    """The checks of a bucket. If it cannot be reached, only the first is made, and none of the `further`."""
    store = storage.store
    assert isinstance(store, GcsStore)
    server = endpoint(store.options) or "Google Cloud Storage"
    return object_checks(storage, f"on {server}", [*further, ("bucket settings", lambda: _settings(store))])


def _settings(store: GcsStore) -> Iterator[Finding]:
    try:
        current = settings(store)
    except LakeError as failure:
        text = failure.message.partition(" at=")[0]
        yield fine("bucket settings", f"could not be read ({text}); nothing depends on it")
        return
    yield from run_checks([("retention", lambda: _retention(current))])
    yield from _lifecycle(store, current)
    yield from _old_versions(store, current)


def _retention(current: Settings) -> Iterator[Finding]:
    if current.retention:
        hint = "use a bucket without a retention policy: a run replaces and deletes objects"
        raise LakeError(f"objects cannot be replaced for {duration(current.retention)}", hint=hint)
    if current.hold:
        hint = "switch it off (gcloud storage buckets update --no-default-event-based-hold): a run replaces objects"
        raise LakeError("new objects are held, so they can be neither replaced nor deleted", hint=hint)
    yield fine("retention", f"objects can be replaced at once; the bucket is in {current.location or 'no known place'}")


def _lifecycle(store: GcsStore, current: Settings) -> Iterator[Finding]:
    if any(rule.covers(store.prefix) and not rule.noncurrent for rule in current.deletes):
        fix = "exclude this prefix from it: old files of a table still count, and the commit log has to be whole"
        yield warning("lifecycle", "a rule deletes objects of the lake: tables would lose rows", fix)
    else:
        yield fine("lifecycle", "no rule deletes files")


def _old_versions(store: GcsStore, current: Settings) -> Iterator[Finding]:
    """A lake replaces small objects all the time, and publishes a file by a copy: what is kept of that is paid."""
    cleaned = any(rule.covers(store.prefix) and rule.noncurrent for rule in current.deletes)
    if current.versioning and not cleaned:
        fix = "add a rule that deletes noncurrent versions after some days: a lake replaces small objects all the time"
        yield warning("versioning", "on, and each object that is replaced or deleted stays for good", fix)
    else:
        yield fine("versioning", "on, and old versions are deleted" if current.versioning else "off")
    if current.soft_delete:
        text = (
            f"deleted objects are kept, and paid, for {duration(current.soft_delete)}; each file is deleted once more, "
        )
        yield fine(
            "soft delete",
            text + "where it waited for its commit. Advice: gcloud storage buckets update "
            "--clear-soft-delete, unless you want to bring back what somebody deletes by mistake",
        )
    else:
        yield fine("soft delete", "off")
