"""A storage over any object store that puts under a condition and copies within itself: Azure's and Google's.

`store.py` is what such a store must do, about ten calls. `publish.py` is the order of these calls.
A pending file is an object below `.bridge`, which no reader of tables lists; to publish it the store copies it to its
key. So the lake needs no unfinished uploads, and whoever deletes the pending object ends its publication for good.
"""

from bridge.lake.storage.objects.storage import ObjectStorage

__all__ = ["ObjectStorage"]
