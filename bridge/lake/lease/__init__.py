"""One run at a time: who holds a pipeline, and how the last run ended. It is all in the pipeline's `lease.json`.

```
lease.py    take it, look who has it: what the others use    owner.py    which process that is, and whether it lives
flock.py    a folder: a lock that dies with its owner        remote.py   a bucket: an object that is renewed, or expires
```
The lease is a courtesy that saves work; the fence is the commit number.
"""

from bridge.lake.lease.lease import Lease, holder, holds, last_lease, take
from bridge.lake.lease.process import fate
from bridge.lake.lease.remote import TTL, release, silence

__all__ = ["TTL", "Lease", "fate", "holder", "holds", "last_lease", "release", "silence", "take"]
