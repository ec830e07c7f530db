"""What is left of a reject file, in a new one."""

from __future__ import annotations

from typing import Any

import orjson

from bridge.commit.committer import Committer
from bridge.lake.records import RejectFile
from bridge.write.rejects import describe_file, new_reject_file


def kept_of(committer: Committer, file: RejectFile, rejects: list[dict[str, Any]]) -> RejectFile:
    """Write what is left of a file into a new one, as old as it, and return what a commit says of that."""
    key = new_reject_file(committer.log.pipeline, file.run, file.stream)
    lines = [orjson.dumps(reject) + b"\n" for reject in rejects]
    committer.storage.write(key, b"".join(lines))
    return describe_file(file.stream, key, [reject["reason"] for reject in rejects], lines, refused=file.refused)
