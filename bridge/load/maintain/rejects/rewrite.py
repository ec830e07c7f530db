"""A new reject file with the rejects that remain of an old one."""

from __future__ import annotations

from typing import Any

import orjson

from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import RejectFile
from bridge.load.write.rejects import describe_file, new_reject_file


def rewritten(committer: Committer, file: RejectFile, rejects: list[dict[str, Any]]) -> RejectFile:
    """Write the remaining rejects of a file into a new one of the same age; return it as a commit names it."""
    key = new_reject_file(committer.log.pipeline, file.run, file.stream)
    lines = [orjson.dumps(reject) + b"\n" for reject in rejects]
    committer.storage.write(key, b"".join(lines))
    return describe_file(file.stream, key, [reject["reason"] for reject in rejects], lines, refused=file.refused)
