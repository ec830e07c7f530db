"""Deletes rejects for good, by one commit of kind `purge`. STATE and tables stay as they are."""

from __future__ import annotations

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.file_records import RejectFile
from bridge.lake.storage import Storage
from bridge.load.maintain.rejects.rewrite import rewritten
from bridge.load.maintain.rejects.survey import Criteria, RejectGroup, find, groups, orphans, read


def purge(storage: Storage, pipeline: str, criteria: Criteria) -> tuple[list[RejectGroup], int, list[str]]:
    """Delete the requested rejects; return what they were, the last commit now, and what recovery had to do.

    Unless a stream or a reason is given, files that no commit counts are deleted, too. A file is deleted only after the
    commit: if the purge dies in between, retention or the next purge deletes it. Raises `PipelineHeld` while a run is
    alive.
    """
    with open_pipeline(storage, pipeline, brief=True) as committer:
        files = find(storage, pipeline, committer.snapshot, criteria)
        purged = groups(files, criteria)
        if files:
            _commit(committer, files, criteria)
        all_streams = criteria.stream is None and criteria.reason is None
        keys = (
            orphans(storage, pipeline, committer.snapshot, criteria) if all_streams else [file.file for file in files]
        )
        for key in keys:
            storage.delete(key)
    return purged, committer.snapshot.n, committer.notes


def _commit(committer: Committer, files: list[RejectFile], criteria: Criteria) -> None:
    remaining = []
    for file in files:
        rejects = [reject for reject in read(committer.storage, file) if not criteria.says(reject["reason"])]
        if rejects:
            remaining.append(rewritten(committer, file, rejects))
    consumed, state = [file.file for file in files], committer.snapshot.pipeline_state
    committer.commit(state, [], kind="purge", reason="rejects were purged", rejects=remaining, consumed=consumed)
