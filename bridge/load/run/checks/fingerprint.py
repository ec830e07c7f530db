"""The facts that a run's bookmarks depend on, so that the next run can warn if they have changed.

A bookmark is a value of one column, read by one version of a tap with some settings. The fingerprint is part of the run
record. It holds no secret, and only hashes of other settings.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Snapshot
from bridge.lake.runs import RunRecord, read_opened, read_run
from bridge.lake.storage import Storage
from bridge.load.tap.installed import tap_version
from bridge.protocol.mask.masks import Masks
from bridge.protocol.singer.catalog import (
    Catalog,
    entries_by_name,
    replication_key,
    replication_method,
    selected_streams,
)
from bridge.protocol.singer.state import bookmark
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline
from bridge.settings.redact import SECRET_KEY, redactor

_PARTS = {"tap", "config", "streams"}
_RUNS_BACK = 100
"""How many runs back we look for a successful one."""


def fingerprint(pipeline: Pipeline, argv: list[str], catalog: Catalog | None) -> dict[str, Any]:
    """The fingerprint of a run: the tap, its settings, and how each stream is replicated."""
    entries = entries_by_name(catalog) if catalog else {}
    alone = {name: {"streams": [entries[name]]} for name in sorted(selected_streams(catalog) if catalog else ())}
    streams = {
        name: {"method": replication_method(one, name), "key": replication_key(one, name)}
        for name, one in alone.items()
    }
    return {
        "tap": {"command": _command(pipeline), "version": tap_version(argv[0])},
        "config": _settings(pipeline),
        "masks": mask_facts(pipeline),
        "streams": streams,
    }


def _command(pipeline: Pipeline) -> str:
    """The tap's command without its folder, which differs between machines, and without secrets."""
    program, *arguments = pipeline.source.argv
    return redactor(pipeline.secrets).text(shlex.join([Path(program).name, *arguments]))


def _settings(pipeline: Pipeline) -> dict[str, str]:
    """A hash of each of the tap's settings, secrets left out: a new password is no new source."""
    config: Any = pipeline.source.config
    if isinstance(config, Path):
        try:
            config = loads(config.read_bytes())
        except (OSError, NotJson):  # the tap itself will report what is wrong with the file
            config = {}
    redact = redactor(pipeline.secrets)
    named = {**config, **{f"env.{name}": value for name, value in pipeline.source.env.items()}}
    public = {name: value for name, value in named.items() if not SECRET_KEY.search(name)}
    return {name: hashlib.sha256(redact(dumps(_public(value)))).hexdigest()[:16] for name, value in public.items()}


def _public(value: Any) -> Any:
    """A setting with sorted keys, without values under a secret's name."""
    if isinstance(value, dict):
        return {str(key): _public(value[key]) for key in sorted(value, key=str) if not SECRET_KEY.search(str(key))}
    if isinstance(value, list):
        return [_public(one) for one in value]
    return value


def last_fingerprint(storage: Storage, pipeline: str) -> dict[str, Any] | None:
    """The fingerprint of the latest successful run, None if there is none."""
    for record in read_opened(storage, pipeline, _RUNS_BACK):
        fingerprint = record.fingerprint
        if record.status == "success" and isinstance(fingerprint, dict) and fingerprint.keys() >= _PARTS:
            return dict(fingerprint)
    return None


def changed_since(
    pipeline: Pipeline,
    before: dict[str, Any] | None,
    now: dict[str, Any],
    snapshot: Snapshot,
    restarted: Collection[str] | None = (),
) -> list[str]:
    """A warning for each thing that changed under a bookmark or a table, with what to do.

    `restarted` are the streams that start from the beginning anyway, so no warning is needed. None: all of them.
    """
    if restarted is None:
        return []
    streams = {name: facts for name, facts in now["streams"].items() if name not in restarted}
    before = before or {"tap": {}, "config": {}, "streams": {}}
    warnings = list[str]()
    for name, facts in streams.items():
        warnings += _stream(pipeline, name, before["streams"], facts, snapshot)
    if snapshot.state and before["tap"]:
        warnings += [*_tap(before["tap"], now["tap"]), *_config(before["config"], now["config"])]
    if snapshot.tables and before["tap"]:
        warnings += _masks(before.get("masks") or {}, now["masks"], snapshot, reload(pipeline, [], mark="`"))
    return warnings


def other_mask_keys(snapshot: Snapshot, facts: dict[str, Any]) -> list[str]:
    """The tables whose values were hashed with another key than that of the masks' facts, or without one."""
    ids = {name: table.masks.get("*") for name, table in snapshot.tables.items()}
    return sorted(name for name, id_ in ids.items() if id_ and facts["key"] and id_ != facts["key"])


def masked_otherwise(storage: Storage, pipeline: str) -> Callable[[str], bool]:
    """The function that says of a run, by its id, whether its masks were other ones than those of the latest run."""
    latest = next(read_opened(storage, pipeline, _RUNS_BACK), None)
    now, answers = _masks_in(latest), dict[str, bool]()

    def is_other(run: str) -> bool:
        if run not in answers:
            answers[run] = bool(now.get("rules")) and _masks_in(read_run(storage, pipeline, run)) != now
        return answers[run]

    return is_other


def _masks_in(record: RunRecord | None) -> dict[str, Any]:
    fingerprint = record.fingerprint if record else None
    return dict(fingerprint.get("masks") or {}) if isinstance(fingerprint, dict) else {}


def mask_facts(pipeline: Pipeline) -> dict[str, Any]:
    """The masks of the settings, as a run's record has them."""
    return Masks(pipeline.mask, pipeline.mask_key or "").facts


def _masks(before: dict[str, Any], now: dict[str, Any], snapshot: Snapshot, remedy: str) -> Iterator[str]:
    if names := other_mask_keys(snapshot, now):
        yield (
            f"mask_key is another one than that of the rows of {', '.join(names[:5])}: a value's hash from now on is "
            f"not the one that older rows have. To hash all rows anew: {remedy}"
        )
    rules, new = before.get("rules") or {}, now["rules"]
    if names := sorted(glob for glob in {*rules, *new} if rules.get(glob) != new.get(glob)):
        yield (
            f"mask changed since the last successful run: {', '.join(names)}. Rows that were loaded before stay as "
            f"they are; to load all anew: {remedy}"
        )


def _stream(
    pipeline: Pipeline, name: str, before: dict[str, Any], now: dict[str, Any], snapshot: Snapshot
) -> Iterator[str]:
    names = pipeline.names_of(name)
    name, mark = names[0], bookmark(snapshot.state, names)
    remedy = f"To load it anew: {reload(pipeline, [name], mark='`')}"
    own = mark.get("replication_key") if isinstance(mark, dict) else None
    then = before.get(name, {})
    key, new_key = own or then.get("key"), now["key"]
    method, new_method = then.get("method"), now["method"]
    if new_method != "FULL_TABLE" and mark and key and new_key and key != new_key:
        yield (
            f"the replication key of {name} changed from {key} to {new_key}, but its bookmark is a value of {key}: the "
            f"tap will skip rows, or send all of them again, and nobody can tell which. {remedy}"
        )
    table = snapshot.table(names)
    if method and new_method and method != new_method and table and table.rows:
        yield f"the replication method of {name} changed from {method} to {new_method}: {_outcome(new_method)}. " + (
            remedy if new_method != "FULL_TABLE" else "Nothing needs to be done"
        )


def _outcome(method: str) -> str:
    if method == "FULL_TABLE":
        return "its table will be replaced by what the tap sends, unless load_method is append-only"
    return "all of its rows may be extracted again, and added a second time"


def _tap(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    if before.get("command") != now["command"]:
        yield (
            f"the tap's command changed from `{before.get('command')}` to `{now['command']}` since the last successful "
            "run; the bookmarks are the old one's. If they mean something else to it, run with `--full`"
        )
    elif before.get("version") != now["version"]:
        yield (
            f"the tap changed from version {before.get('version')} to {now['version']} since the last successful run. "
            "If rows look wrong, load the stream anew: run with `--full -s STREAM`"
        )


def _config(before: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if names:
        yield (
            f"the tap's settings changed since the last successful run: {', '.join(names)}. The bookmarks stay: what "
            "lies before them is not extracted again, unless with `--full -s STREAM`"
        )
