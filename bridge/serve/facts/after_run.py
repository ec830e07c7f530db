"""Send facts after a run, or after a look at the clock, to those whom the pipeline's settings name."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from urllib.parse import urlsplit

from bridge.durations import duration
from bridge.errors import BridgeError, SettingsError
from bridge.lake.reconciled import Proof
from bridge.lake.runs import add_warnings
from bridge.lake.storage import Storage
from bridge.serve.facts.facts import Fact, facts_by_clock, facts_of, facts_of_comparison, record_of
from bridge.serve.facts.lineage import Lineage
from bridge.serve.facts.metrics import write_textfile
from bridge.settings.options import Pipeline
from bridge.settings.receivers import Notification

_DEADLINE = 10.0
"""Seconds that all receivers of a run have together. After that their threads are left behind."""
_EXTRA = 'pip install "singer-bridge[notify]"'


def after_run(
    storage: Storage, pipeline: Pipeline, run: str, lineage: Lineage | None = None, deadline: float = _DEADLINE
) -> list[str]:
    """Tell the receivers of a run that has ended; returns warnings, and never raises. `lineage`: it has begun there.

    Its record has the warnings, too. Everything is committed, and the lease is given back: whatever a receiver does,
    the run's outcome stays.
    """
    if not (pipeline.notify or pipeline.openlineage or pipeline.metrics.textfile):
        return []
    try:
        record = record_of(storage, pipeline.name, run)
        if record is None:
            return []
        facts = list(facts_of(storage, record)) if pipeline.notify else []
        calls: dict[str, Callable[[], bool]] = _notifications(pipeline.notify, facts)
        if pipeline.openlineage:
            calls["openlineage"] = partial((lineage or Lineage(pipeline.openlineage)).end, storage, record)
        if folder := pipeline.metrics.textfile:
            calls["metrics.textfile"] = partial(write_textfile, folder, storage, pipeline.name, pipeline.stale_after)
        warnings = _tell_all(calls, deadline)
        if warnings:
            with suppress(BridgeError):
                add_warnings(storage, record, warnings)
        return warnings
    except Exception as error:  # noqa: BLE001 - all is committed: whatever fails here must not fail the run
        return [f"no receiver was notified of this run: {type(error).__name__}"]


def after_comparison(
    storage: Storage, pipeline: Pipeline, proofs: Mapping[str, Proof], former: Mapping[str, Proof]
) -> list[str]:
    """Tell the receivers which tables are no longer as their source; returns warnings of receivers that failed.

    `former`: what the comparison before this one found.
    """
    calls: dict[str, Callable[[], bool]] = _notifications(pipeline.notify, facts_of_comparison(proofs, former))
    if folder := pipeline.metrics.textfile:
        calls["metrics.textfile"] = partial(write_textfile, folder, storage, pipeline.name, pipeline.stale_after)
    return _tell_all(calls)


def end_lineage(storage: Storage, pipeline: str, run: str, lineage: Lineage) -> None:
    """Tell of an attempt's end that another one follows; of the last one `after_run` does. Never raises."""
    with suppress(BridgeError):
        if record := record_of(storage, pipeline, run):
            _tell_all({"openlineage": partial(lineage.end, storage, record)})


def look_at_clock(storage: Storage, pipeline: Pipeline, deadline: float = _DEADLINE) -> tuple[list[Fact], list[str]]:
    """Tell the receivers what only the clock shows: a run that died, a pipeline that is stale. Each once.

    Returns the facts, and warnings of receivers that failed. Call it each minute, or as often as you like. Raises
    `LakeError`.
    """
    now = datetime.now(timezone.utc)
    facts = list(facts_by_clock(storage, pipeline.name, pipeline.stale_after, now)) if pipeline.notify else []
    return facts, _tell_all(_notifications(pipeline.notify, facts), deadline) if facts else []


def _tell_all(receivers: Mapping[str, Callable[[], bool]], deadline: float = _DEADLINE) -> list[str]:
    """Call all at once, each in a thread of its own; return a warning for each that failed or was too slow.

    A key describes its receiver without a secret. An error's text may hold its URL, so a warning has only its type.
    """
    outcomes: dict[str, str] = {}

    def call(name: str, send: Callable[[], bool]) -> None:
        try:
            outcomes[name] = "" if send() else "did not take it"
        except Exception as error:  # noqa: BLE001 - whatever a receiver does must not fail the run
            outcomes[name] = f"failed with {type(error).__name__}"

    # Daemons: the process does not wait for them at its end.
    threads = [
        threading.Thread(target=call, args=(name, send), name=f"receiver {name}", daemon=True)
        for name, send in receivers.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    silent = f"did not answer within {duration(deadline)}"
    results = {name: outcomes.get(name, silent) for name in receivers}
    return [f"{name} {text}; the run itself is not affected" for name, text in results.items() if text]


def _require_apprise() -> None:
    """Raise `SettingsError` if the extra `notify` is not installed."""
    try:
        import apprise  # noqa: F401
    except ImportError as error:
        raise SettingsError("the extra `notify` is not installed", hint=_EXTRA) from error


def _notifications(receivers: Iterable[Notification], facts: Iterable[Fact]) -> dict[str, Callable[[], bool]]:
    """How each receiver that wants some of the facts is told of them, by a name without secrets."""
    facts, calls = list(facts), dict[str, Callable[[], bool]]()
    for place, receiver in enumerate(receivers):
        if chosen := [fact for fact in facts if fact.kind in receiver.on]:
            calls[f"notify[{place}] ({urlsplit(receiver.url).scheme})"] = partial(_send, receiver.url, chosen)
    return calls


def _send(url: str, facts: list[Fact]) -> bool:
    _require_apprise()
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it would print URLs
    service = apprise.Apprise()
    if not service.add(url):
        return False
    kinds = ", ".join(dict.fromkeys(fact.kind for fact in facts))
    body = "\n".join(f"{fact.kind}: {fact.text} (run {fact.run})" for fact in facts)
    bad = any(fact.kind in ("failed", "stale", "differs") for fact in facts)
    good = all(fact.kind == "recovered" for fact in facts)
    level = apprise.NotifyType.FAILURE if bad else apprise.NotifyType.SUCCESS if good else apprise.NotifyType.WARNING
    return bool(service.notify(body=body, title=f"{facts[0].pipeline}: {kinds}", notify_type=level))
