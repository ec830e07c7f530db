"""One run at a time: who holds a pipeline, and how the last run ended. All of it is in the pipeline's `lease.json`.

```
lease.py    take the lease, look who holds it; what other rooms call
process.py  which process holds it, and whether that is alive
flock.py    in a folder: a lock that ends with its owner
remote.py   in a bucket: an object that its holder renews, or that expires
```
The lease only saves work. What keeps two writers apart is the commit number, which only one of them can create.
"""

from bridge.lake.lease.lease import Lease, holder, holds, last_lease, lease_of, require_free, take
from bridge.lake.lease.process import fate
from bridge.lake.lease.remote import TTL, release, silence

__all__ = [
    "TTL",
    "Lease",
    "fate",
    "holder",
    "holds",
    "last_lease",
    "lease_of",
    "release",
    "require_free",
    "silence",
    "take",
]
