"""Notifications by apprise, which knows a hundred services by their URLs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import urlsplit

from bridge.errors import SettingsError
from bridge.serve.facts.facts import Fact
from bridge.settings.receivers import Notification

_EXTRA = 'pip install "singer-bridge[notify]"'


def require_apprise() -> None:
    """Raise `SettingsError` if the extra `notify` is not installed."""
    try:
        import apprise  # noqa: F401
    except ImportError as error:
        raise SettingsError("the extra `notify` is not installed", hint=_EXTRA) from error


def notifications(receivers: Iterable[Notification], facts: Iterable[Fact]) -> dict[str, Callable[[], bool]]:
    """How each receiver that wants some of the facts is told of them, by a name without secrets."""
    facts, calls = list(facts), dict[str, Callable[[], bool]]()
    for place, receiver in enumerate(receivers):
        if chosen := [fact for fact in facts if fact.kind in receiver.on]:
            calls[f"notify[{place}] ({urlsplit(receiver.url).scheme})"] = partial(_send, receiver.url, chosen)
    return calls


def _send(url: str, facts: list[Fact]) -> bool:
    require_apprise()
    import apprise

    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # it would print URLs
    service = apprise.Apprise()
    if not service.add(url):
        return False
    kinds = ", ".join(dict.fromkeys(fact.kind for fact in facts))
    body = "\n".join(f"{fact.kind}: {fact.text} (run {fact.run})" for fact in facts)
    bad = any(fact.kind in ("failed", "stale") for fact in facts)
    good = all(fact.kind == "recovered" for fact in facts)
    level = apprise.NotifyType.FAILURE if bad else apprise.NotifyType.SUCCESS if good else apprise.NotifyType.WARNING
    return bool(service.notify(body=body, title=f"{facts[0].pipeline}: {kinds}", notify_type=level))
