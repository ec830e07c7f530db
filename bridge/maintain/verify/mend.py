"""The repair: what can be mended without guessing. Under the lease, and whatever dies in it can be done again.

First what would keep the pipeline from being opened, then recovery, then the rest. Nothing is deleted that counts, and
nothing is touched that is not ours: a file of no commit goes into the trash, by a commit that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.commit.committer import FILES_CHANGED, Committer
from bridge.commit.manifests import write_manifests
from bridge.commit.open import open_pipeline
from bridge.errors import CorruptLake
from bridge.lake.folder_names import table_and_name
from bridge.lake.lease import take
from bridge.lake.log import Log, changes_of
from bridge.lake.ownership import Owner, claim, owners_of
from bridge.lake.runs import new_run_id, write_streams
from bridge.maintain.verify.check import Verifier, lease_of
from bridge.maintain.verify.finding import Finding, Mend, Report
from bridge.storage import Add, Change, Missing, Remove, Storage

_BY_RECOVERY = ("recover", "publish", "manifest")


def repair(storage: Storage, pipeline: str) -> tuple[list[str], Report]:
    """Mend what can be; return what was done, in sentences, and what is found after it.

    Raises `PipelineHeld` while a run is alive, and `CorruptLake` where even recovery would have to guess.
    """
    run, verifier = new_run_id(), Verifier(storage, pipeline)
    before = verifier.look(*lease_of(storage, pipeline)).findings
    for finding in before:
        if finding.check == "commits" and not finding.mend:
            raise CorruptLake(finding.found, hint=finding.fix, file=finding.file)
    lease = take(storage, pipeline, run)
    try:
        report = verifier.look(lease.last)
        closed = lease.last.get("closed") == report.head
        done = _before_opening(verifier.log, report.findings, closed=closed)
    except BaseException:
        lease.close(head=lease.last.get("head") or 0, clean=False)
        raise
    with open_pipeline(storage, pipeline, run, lease=lease) as committer:
        after = verifier.look(_closed(committer)).findings
        done += [*committer.notes, *(f"mended by recovery: {name}" for name in _gone(before, after))]
        done += _mended(committer, after)
    return done, Verifier(storage, pipeline).look(_closed(committer))


def _gone(before: Sequence[Finding], after: Sequence[Finding]) -> list[str]:
    """Return the files that recovery has put in order."""
    still = {finding.file for finding in after}
    mends = {finding.file: finding.mend.how for finding in before if finding.mend}
    return [file for file, how in mends.items() if file not in still and how in _BY_RECOVERY]


def _closed(committer: Committer) -> dict[str, Any]:
    return {"head": committer.view.n, "closed": committer.view.n}


def _before_opening(log: Log, findings: Sequence[Finding], *, closed: bool) -> list[str]:
    """Mend what recovery would stop at, or would not look for as the last run has `closed` well."""
    done, storage = [], log.storage
    for file, mend in [(finding.file, finding.mend) for finding in findings if finding.mend]:
        if mend.how == "back":
            add = Add(mend.source, file, storage.size(mend.source) or 0)
            storage.publish([Change(table_and_name(file)[0], adds=(add,))])
            done.append(f"brought back from the trash: {file}")
        elif mend.how == "state":
            if mend.source:
                storage.write(mend.source, storage.read(file) or b"")
            storage.delete(file)
            kept = f"; what it said is in {mend.source}" if mend.source else ""
            done.append(f"state.json is the log's STATE again{kept}")
        elif mend.how == "publish" and closed:
            done.append(_publish(log, file))
    return done


def _mended(committer: Committer, findings: Sequence[Finding]) -> list[str]:
    """Mend the rest, and say what was done."""
    named = [(finding.file, finding.mend) for finding in findings if finding.mend]
    acts: dict[str, Callable[[Committer, str, Mend], str]] = {
        "again": _remove_again,
        "manifest": _manifest,
        "stream": _stream,
        "owner": _owner,
        "table log": _table_log,
    }
    done = [acts[mend.how](committer, file, mend) for file, mend in named if mend.how in acts]
    if ghosts := [(file, mend.stream) for file, mend in named if mend.how == "trash"]:
        _into_the_trash(committer, ghosts)
        done += [f"moved into the trash by commit {committer.view.n}: {file}" for file, _ in ghosts]
    return list(dict.fromkeys(done))


def _publish(log: Log, file: str) -> str:
    """Publish the last commit once more, though its run said that it had."""
    records = log.history(log.head(), fences=False)
    record = next(record for record in records if record.kind in FILES_CHANGED)
    try:
        log.storage.publish(changes_of(log.pipeline, record))
    except Missing as missing:
        return f"could not be published, {missing.keys[0]} is gone: {file}"
    return f"published once more: {file}"


def _remove_again(committer: Committer, file: str, mend: Mend) -> str:
    committer.storage.publish([Change(table_and_name(file)[0], removes=(Remove(file, mend.source),))])
    return f"removed once more, into the trash: {file}"


def _manifest(committer: Committer, _: str, mend: Mend) -> str:
    write_manifests(committer.head, mend.stream, shared=_is_shared(committer, mend.stream))
    return f"written anew: the manifests of {mend.stream}"


def _table_log(committer: Committer, file: str, mend: Mend) -> str:
    committer.table_logs.repair(mend.stream, committer.view, committer.run)
    return f"one more entry makes it say what the commit log does: {file}"


def _stream(committer: Committer, file: str, mend: Mend) -> str:
    write_streams(committer.storage, committer.log.pipeline, committer.view, [mend.stream])
    return f"written anew: {file}"


def _owner(committer: Committer, file: str, mend: Mend) -> str:
    me, folder = Owner(committer.log.pipeline, mend.stream), committer.view.tables[mend.stream].folder
    claim(committer.storage, folder, me, shared=False)
    return f"written anew: {file}"


def _into_the_trash(committer: Committer, ghosts: list[tuple[str, str]]) -> None:
    """Take files away that are of no commit, by one that names them: the retention then knows of them, too."""
    changes = []
    for stream in dict.fromkeys(stream for _, stream in ghosts):
        table = committer.view.tables[stream]
        names = [file.removeprefix(f"{table.folder}/") for file, of in ghosts if of == stream]
        changes.append(table.change(stream, removes=names, shared=_is_shared(committer, stream)))
    view, reason = committer.view, "verify --repair: files of no commit"
    committer.commit(view.state, changes, staged=view.staged, reason=reason)


def _is_shared(committer: Committer, stream: str) -> bool:
    return owners_of(committer.storage, committer.view.tables[stream].folder)[1]
