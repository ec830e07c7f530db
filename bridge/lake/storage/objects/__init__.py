"""A storage over any object store that puts under a condition: S3's, Azure's and Google's.

`store.py` is what such a store must do. `publish.py` is the order of these calls. `copying.py` is how files wait and
become visible in a store that copies under a condition.
"""

from bridge.lake.storage.objects.storage import ObjectStorage

__all__ = ["ObjectStorage"]
