"""What a run needs of a container of Azure, and what the container itself may forbid."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from bridge.errors import LakeError
from bridge.findings import Check, Finding, fine, warning
from bridge.lake.storage.azure.store import AzureStore
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.objects.checks import object_checks


def azure_checks(storage: ObjectStorage, further: list[Check]) -> list[Check]:
    """The checks of a container. If it cannot be reached, only the first is made, and none of the `further`."""
    store = storage.store
    assert isinstance(store, AzureStore)
    access = store.clients.access
    how = "a key" if access.key else "a SAS token" if access.sas else "a login"
    more: list[Check] = [
        ("SAS token", lambda: _signature(store, f".doctor-{uuid.uuid4().hex}")),
        ("immutability", lambda: _immutable(store)),
    ]
    return object_checks(storage, f"at {access.endpoint}, by {how}", [*further, *more[0 if access.sas else 1 :]])


def _signature(store: AzureStore, prefix: str) -> Iterator[Finding]:
    """The store keeps the address from which an object was copied, and a SAS token is part of it."""
    source, copy = f"{prefix}/source", f"{prefix}/copy"
    try:
        store.put(source, b"x")
        store.copy(source, copy)
        signature = store.clients.access.sas.partition("sig=")[2].partition("&")[0]
        shown = str(store.blob(copy).get_blob_properties().copy.source or "")
    finally:
        for key in (source, copy):
            store.delete(key)
    if signature and signature in shown:
        fix = "use a login instead (destination.azure.credential), or a token that whoever can read the lake may have"
        yield warning("SAS token", "whoever may read an object's properties sees it: the store shows it there", fix)
    else:
        yield fine("SAS token", "the store does not show it in the properties of copied objects")


def _immutable(store: AzureStore) -> Iterator[Finding]:
    container = store.clients.patient.get_container_client(store.container)
    try:
        with store.explained("read the container's properties", ""):
            seen = container.get_container_properties()
    except LakeError as failure:
        text = f"could not be read ({failure.message.partition(' at=')[0]}); nothing depends on it"
        yield fine("immutability", text)
        return
    if seen.has_immutability_policy or seen.has_legal_hold:
        fix = "use a container without one: removed files could not be deleted, nor upserted ones replaced"
        yield warning("immutability", "the container has an immutability policy or a legal hold", fix)
    else:
        yield fine("immutability", "no policy and no legal hold on the container")
