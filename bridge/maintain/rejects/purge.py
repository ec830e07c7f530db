"""Rejects deleted for good, by one commit of kind `purge` that says so: STATE and tables stay as they are."""

from __future__ import annotations

from bridge.commit.committer import Committer
from bridge.commit.open import open_pipeline
from bridge.lake.records import RejectFile
from bridge.maintain.rejects.rewrite import kept_of
from bridge.maintain.rejects.survey import Group, Wanted, find, groups, orphans, read
from bridge.storage import Storage


def purge(storage: Storage, pipeline: str, wanted: Wanted) -> tuple[list[Group], int, list[str]]:
    """Delete the rejects that are meant; return what they were, the last commit now, and what recovery had to do.

    Files that no commit counts go, too, unless only a stream or a reason is meant. Nothing is deleted before the log
    says that it is gone: whatever dies in between, the retention or the next purge deletes it. Raises `PipelineHeld`
    while a run is alive.
    """
    with open_pipeline(storage, pipeline, brief=True) as committer:
        files = find(storage, pipeline, committer.view, wanted)
        gone = groups(files, wanted)
        if files:
            _commit(committer, files, wanted)
        unnamed = wanted.stream is None and wanted.reason is None
        for key in orphans(storage, pipeline, committer.view, wanted) if unnamed else [file.file for file in files]:
            storage.delete(key)
    return gone, committer.view.n, committer.notes


def _commit(committer: Committer, files: list[RejectFile], wanted: Wanted) -> None:
    kept = []
    for file in files:
        rest = [reject for reject in read(committer.storage, file) if not wanted.says(reject["reason"])]
        if rest:
            kept.append(kept_of(committer, file, rest))
    consumed = [file.file for file in files]
    committer.commit(
        committer.view.pipeline_state, [], kind="purge", reason="rejects were purged", rejects=kept, consumed=consumed
    )
