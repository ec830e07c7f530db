"""Repairs what can be repaired without guessing. It holds the lease; after a crash every step can be repeated.

First it repairs what would keep the pipeline from opening, then recovery runs, then it repairs the rest. It deletes no
file that a commit names, and touches no file of other pipelines. A file that no commit names goes into the trash, by a
commit of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.errors import CorruptLake
from bridge.findings import Finding, Mend
from bridge.lake.commit.committer import FILES_CHANGED, Committer
from bridge.lake.commit.manifests import write_manifests
from bridge.lake.commit.open import open_pipeline
from bridge.lake.lease import lease_of, take
from bridge.lake.log import Log, storage_changes
from bridge.lake.ownership import Owner, claim, owners_of
from bridge.lake.paths import table_and_name
from bridge.lake.runs import new_run_id
from bridge.lake.storage import Add, Change, Missing, Remove, Storage
from bridge.lake.stream_files import StreamFiles
from bridge.operate.verify.check import Verifier
from bridge.operate.verify.report import Report

_BY_RECOVERY = ("recover", "publish", "manifest")


def repair(storage: Storage, pipeline: str) -> tuple[list[str], Report]:
    """Repair what can be; return what was done, in sentences, and the report after it.

    Raises `PipelineHeld` while a run is alive, and `CorruptLake` where even recovery would have to guess.
    """
    run, verifier = new_run_id(), Verifier(storage, pipeline)
    before = verifier.look(*lease_of(storage, pipeline)).findings
    for finding in before:
        if finding.check == "commits" and not finding.mend:
            raise CorruptLake(finding.text, hint=finding.fix, file=finding.file)
    lease = take(storage, pipeline, run)
    try:
        report = verifier.look(lease.last)
        closed = lease.last.get("closed") == report.head
        repairs = _before_opening(verifier.log, report.findings, closed=closed)
    except BaseException:
        lease.close(head=lease.last.get("head") or 0, clean=False)
        raise
    with open_pipeline(storage, pipeline, run, lease=lease) as committer:
        after = verifier.look(_closed(committer)).findings
        repairs += [*committer.notes, *(f"mended by recovery: {name}" for name in _recovered(before, after))]
        repairs += _repaired(committer, after)
    return repairs, Verifier(storage, pipeline).look(_closed(committer))


def _recovered(before: Sequence[Finding], after: Sequence[Finding]) -> list[str]:
    """The files that recovery has put in order."""
    still = {finding.file for finding in after}
    mends = {finding.file: finding.mend.how for finding in before if finding.mend}
    return [file for file, how in mends.items() if file not in still and how in _BY_RECOVERY]


def _closed(committer: Committer) -> dict[str, Any]:
    return {"head": committer.snapshot.n, "closed": committer.snapshot.n}


def _before_opening(log: Log, findings: Sequence[Finding], *, closed: bool) -> list[str]:
    """Repair what recovery would stop at, or would not look for as the last run `closed` in good order."""
    repairs, storage = [], log.storage
    for file, mend in [(finding.file, finding.mend) for finding in findings if finding.mend]:
        if mend.how == "back":
            add = Add(mend.source, file, storage.size(mend.source) or 0)
            storage.publish([Change(table_and_name(file)[0], adds=(add,))])
            repairs.append(f"brought back from the trash: {file}")
        elif mend.how == "state":
            if mend.source:
                storage.write(mend.source, storage.read(file) or b"")
            storage.delete(file)
            copy = f"; a copy of it is {mend.source}" if mend.source else ""
            repairs.append(f"state.json is the log's STATE again{copy}")
        elif mend.how == "publish" and closed:
            repairs.append(_publish(log, file))
    return repairs


def _repaired(committer: Committer, findings: Sequence[Finding]) -> list[str]:
    """Repair the rest, and say what was done."""
    mends = [(finding.file, finding.mend) for finding in findings if finding.mend]
    repairs = [text for file, mend in mends if (text := _repair_file(committer, file, mend))]
    if ghosts := [(file, mend.stream) for file, mend in mends if mend.how == "trash"]:
        _into_the_trash(committer, ghosts)
        repairs += [f"moved into the trash by commit {committer.snapshot.n}: {file}" for file, _ in ghosts]
    return list(dict.fromkeys(repairs))


def _publish(log: Log, file: str) -> str:
    """Publish the last commit again, though its run noted that it had."""
    records = log.history(log.head(), fences=False)
    record = next(record for record in records if record.kind in FILES_CHANGED)
    try:
        log.storage.publish(storage_changes(log.pipeline, record))
    except Missing as missing:
        return f"could not be published, {missing.keys[0]} is gone: {file}"
    return f"published again: {file}"


def _repair_file(committer: Committer, file: str, mend: Mend) -> str:
    """Repair one file and say what was done; empty for what is not repaired file by file."""
    storage, snapshot, stream = committer.storage, committer.snapshot, mend.stream
    if mend.how == "again":
        storage.publish([Change(table_and_name(file)[0], removes=(Remove(file, mend.source),))])
        return f"removed again, into the trash: {file}"
    if mend.how == "manifest":
        write_manifests(committer.head, {stream: _is_shared(committer, stream)})
        return f"written again: the manifests of {stream}"
    if mend.how == "table log":
        committer.table_logs.repair(stream, snapshot, committer.run)
        return f"one more entry makes it agree with the commit log: {file}"
    if mend.how == "stream":
        StreamFiles(committer.log, snapshot).write(snapshot, [stream])
        return f"written again: {file}"
    if mend.how == "owner":
        claim(storage, snapshot.tables[stream].folder, Owner(committer.log.pipeline, stream), shared=False)
        return f"written again: {file}"
    return ""


def _into_the_trash(committer: Committer, ghosts: list[tuple[str, str]]) -> None:
    """Remove files of no commit, by a commit that names them: so retention knows of them, too."""
    changes = []
    for stream in dict.fromkeys(stream for _, stream in ghosts):
        table = committer.snapshot.tables[stream]
        names = [file.removeprefix(f"{table.folder}/") for file, of in ghosts if of == stream]
        changes.append(table.change(stream, removes=names, shared=_is_shared(committer, stream)))
    snapshot, reason = committer.snapshot, "verify --repair: files of no commit"
    committer.commit(snapshot.pipeline_state, changes, staged=snapshot.staged, reason=reason)


def _is_shared(committer: Committer, stream: str) -> bool:
    return owners_of(committer.storage, committer.snapshot.tables[stream].folder)[1]
