"""Recovery, when a pipeline is opened: publish the last commit again, or take it back, and compare `state.json`.

This is step 1 of the protocol in `committer.py`. Each step can be repeated after a crash in it.
"""

from __future__ import annotations

import shlex

from bridge.errors import CorruptLake
from bridge.lake.commit.committer import FILES_CHANGED, Committer
from bridge.lake.commit.state_file import StateFile, edit_note, look_at_state_file, note_published, state_key
from bridge.lake.log import Snapshot, add_of, storage_changes, undo
from bridge.lake.ownership import require_own
from bridge.lake.paths import file_name, table_and_name
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Add, Missing


def finish_last_commit(committer: Committer, last: CommitRecord | None) -> None:
    """Finish publishing the `last` commit, or void it; then compare `state.json`."""
    if last and last.kind in FILES_CHANGED:
        _roll_forward(committer, last)
    reconcile_state_file(committer, recovering=True)


def _roll_forward(committer: Committer, record: CommitRecord) -> None:
    require_own(committer.storage, committer.log.pipeline, (change.folder for change in record.tables))
    try:
        committer.publish(record)
    except Missing as missing:
        file = look_at_state_file(committer.head)  # ends here if another run took over and removed it
        if record.kind == "void":
            hint = "files of the lake were deleted by somebody else; restore them from a backup of the bucket"
            raise CorruptLake("a file of the lake is gone", hint=hint, file=missing.keys[0]) from missing
        _void(committer, record, missing, file)


def _void(committer: Committer, record: CommitRecord, missing: Missing, shown: StateFile) -> None:
    """Take back a commit that has lost files. Raises `CorruptLake` if its STATE is already in `state.json`."""
    log, before = committer.log, committer.log.snapshot(record.n - 1)
    state = shown.state(committer.storage, log.pipeline)
    if state is not None and state == record.state != before.state and shown.is_of(record.n):
        file = shlex.quote(f"{committer.storage.uri}/{state_key(log.pipeline)}")
        hint = (
            "files of the lake were deleted by somebody else: restore them; or delete "
            f"{file}, and the next run takes that commit back and loads its rows again"
        )
        raise CorruptLake("a committed file is gone", hint=hint, file=missing.keys[0], commit=record.n)
    # The lost commit may have published the staged files, so their streams start again. A compaction does not touch
    # them.
    staged = before.staged if record.kind == "compact" else {}
    tables = undo(log.pipeline, record, before, _settled(committer, record, before))
    committer.notes.append(f"commit {record.n} had lost {len(missing.keys)} file(s) before it was visible: taken back")
    rejects, consumed = committer.snapshot.rejects_again(before)
    void = committer.create(
        "void",
        before.pipeline_state.without(before.staged.keys() - staged.keys()),
        tables=tables,
        voids=record.n,
        staged=staged,
        rejects=rejects,
        consumed=consumed,
    )
    _roll_forward(committer, void)


def _settled(committer: Committer, record: CommitRecord, before: Snapshot) -> dict[str, str]:
    """Stop the rewrites of a commit; return the keys of the files that are already rewritten, each with a new name.

    Raises `CommitLost` if another run took over. If it does this before us unnoticed, our next record is refused.
    """
    storage, changes = committer.storage, storage_changes(committer.log.pipeline, record)
    rewritten = {one.add.key for one in storage.settle_rewrites(changes)}
    files = {f"{table.folder}/{name}": file for table in before.tables.values() for name, file in table.files.items()}
    same = {one.add.key for change in changes for one in change.rewrites} - rewritten
    for add in storage.missing_pending([Add(key, key, files[key].size) for key in sorted(same)])[:1]:
        committer.head.check()  # another run that took over has moved it
        hint = "somebody else has changed it: restore it from a backup of the bucket"
        raise CorruptLake("a file of the lake is not what the log says", hint=hint, file=add.key)
    return {
        key: file_name(committer.generation, seq, table_and_name(key)[1]) for seq, key in enumerate(sorted(rewritten))
    }


def reconcile_state_file(committer: Committer, *, recovering: bool) -> None:
    """Compare `state.json` with the head: write the head's STATE into it, or commit what a person wrote there."""
    head, snapshot = committer.head, committer.snapshot
    file = look_at_state_file(head)
    comparison = file.compare(committer.log, snapshot.n, snapshot.state, died=recovering)
    if comparison == "edited":
        edited = file.edited(committer.storage, committer.log.pipeline)
        state, staged = snapshot.pipeline_state.given(edited), snapshot.still_staged(edited)
        committer.create("state", state, staged=staged, reason="state.json was edited by hand")
        committer.notes.append(edit_note(snapshot.state, edited))
    if file.data is not None and comparison in ("edited", "current"):
        # After a death this is written even if it is noted already: the old run may only be suspended, and has seen
        # that version of the file. Its own swap must fail.
        if recovering or not file.is_noted():
            note_published(head, file.data)
    elif comparison == "behind" or snapshot.state is not None:
        committer.write_state()


def restart_damaged_staged(committer: Committer) -> None:
    """Start a half loaded table again if one of its files is gone: the tap would not send those rows twice."""
    snapshot = committer.snapshot
    files = {add_of(stage.folder, file): s for s, stage in snapshot.staged.items() for file in stage.files}
    lost = {files[add] for add in committer.storage.missing_pending(list(files))}
    if lost:
        staged = {stream: stage for stream, stage in snapshot.staged.items() if stream not in lost}
        committer.create("state", snapshot.pipeline_state.without(lost), staged=staged, reason="staged files are gone")
        committer.write_state()
        names = ", ".join(sorted(lost))
        committer.notes.append(f"files of half loaded tables were gone, these start again: {names}")
