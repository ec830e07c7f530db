"""What an opening repairs: it publishes the last commit again, or takes it back, and compares `state.json`.

Each step can be repeated, whatever dies in it. Step 1 of the protocol in `committer.py`.
"""

from __future__ import annotations

import shlex
from typing import Any

from bridge.commit.committer import FILES_CHANGED, Committer
from bridge.commit.state_file import expect_object, parse_state, refuse_older, state_before, state_key, was_said
from bridge.errors import CorruptLake
from bridge.lake.folder_names import file_name, table_and_name
from bridge.lake.log import View, add_of, changes_of, inverse
from bridge.lake.records import CommitRecord
from bridge.lake.tap_groups import groups_again
from bridge.singer.state import forget
from bridge.storage import Add, Missing


def recover(committer: Committer, last: CommitRecord | None) -> None:
    """Finish what the `last` commit began; then compare `state.json`."""
    if last and last.kind in FILES_CHANGED:
        _roll_forward(committer, last)
    check_state_file(committer, recovering=True)


def _roll_forward(committer: Committer, record: CommitRecord) -> None:
    log = committer.log
    try:
        committer.publish(record)
    except Missing as missing:
        data = committer.head.look(state_key(log.pipeline))  # who took over may have removed what is missing
        if record.kind == "void":
            hint = "files of the lake were deleted by somebody else; restore them from a backup of the bucket"
            raise CorruptLake("a file of the lake is gone", hint=hint, file=missing.keys[0]) from missing
        _void(committer, record, missing, parse_state(committer.storage, log.pipeline, data))


def _void(committer: Committer, record: CommitRecord, missing: Missing, shown: Any) -> None:
    """Take a commit back that has lost files; `shown` is what `state.json` says. Raises `CorruptLake` if that is its
    STATE: then somebody may have seen it.
    """
    log, before = committer.log, committer.log.view(record.n - 1)
    if shown is not None and shown == record.state != before.state:
        file = shlex.quote(f"{committer.storage.uri}/{state_key(log.pipeline)}")
        hint = (
            "files of the lake were deleted by somebody else: restore them; or delete "
            f"{file}, and the next run takes that commit back and loads its rows again"
        )
        raise CorruptLake("a committed file is gone", hint=hint, file=missing.keys[0], commit=record.n)
    # Staged files went into the lost commit, and start again; compacting leaves them where they are.
    staged = before.staged if record.kind == "compact" else {}
    restarted = before.staged.keys() - staged.keys()
    tables = inverse(log.pipeline, record, before, _settled(committer, record, before))
    committer.notes.append(f"commit {record.n} had lost {len(missing.keys)} file(s) before it was visible: taken back")
    rejects, consumed = committer.view.rejects_again(before)
    void = committer.create(
        "void",
        forget(before.state, restarted),
        tables=tables,
        voids=record.n,
        staged=staged,
        groups=groups_again(before, restarted),
        rejects=rejects,
        consumed=consumed,
    )
    _roll_forward(committer, void)


def _settled(committer: Committer, record: CommitRecord, before: View) -> dict[str, str]:
    """Have no file of a commit be rewritten any more; return the keys of those that are, each with a new name.

    Who comes after us may do this before us, but then our next record is none.
    """
    storage, changes = committer.storage, changes_of(committer.log.pipeline, record)
    done = {one.add.key for one in storage.settle_rewrites(changes)}
    files = {f"{table.folder}/{name}": file for table in before.tables.values() for name, file in table.files.items()}
    same = {one.add.key for change in changes for one in change.rewrites} - done
    for add in storage.missing_pending([Add(key, key, files[key].size) for key in sorted(same)])[:1]:
        hint = "somebody else has changed it: restore it from a backup of the bucket"
        raise CorruptLake("a file of the lake is not what the log says", hint=hint, file=add.key)
    return {key: file_name(committer.generation, seq, table_and_name(key)[1]) for seq, key in enumerate(sorted(done))}


def check_state_file(committer: Committer, *, recovering: bool) -> None:
    """Compare `state.json` with the head, behind which an unfinished step 5 may have left it."""
    head, storage, pipeline = committer.head, committer.storage, committer.log.pipeline
    state, existing = head.view.state, parse_state(storage, pipeline, head.look(state_key(pipeline)))
    if existing is None:
        if state is not None:
            committer.write_state()
    elif existing == state:
        if recovering:  # it may be an earlier commit's, which said the same
            committer.write_state()
    elif recovering and existing == state_before(head):
        committer.write_state()
    elif was_said(committer.log, head.view.n, existing):
        raise refuse_older(storage, pipeline)
    else:
        expect_object(storage, pipeline, existing)
        staged = committer.still_staged(existing)
        committer.create("state", existing, reason="state.json was edited by hand", staged=staged)
        committer.notes.append(f"state.json was edited by hand: that STATE counts, as commit {head.view.n}")


def check_staged(committer: Committer) -> None:
    """Have a half loaded table start again if a file of it is gone: the tap would not send those rows twice."""
    view = committer.view
    files = {add_of(stage.folder, file): s for s, stage in view.staged.items() for file in stage.files}
    lost = {files[add] for add in committer.storage.missing_pending(list(files))}
    if lost:
        staged = {stream: stage for stream, stage in view.staged.items() if stream not in lost}
        groups, reason = groups_again(view, lost), "staged files are gone"
        committer.create("state", forget(view.state, lost), staged=staged, groups=groups, reason=reason)
        committer.write_state()
        names = ", ".join(sorted(lost))
        committer.notes.append(f"files of half loaded tables were gone, these start again: {names}")
