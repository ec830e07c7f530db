"""Who hears of a pipeline's runs: `notify`, `openlineage`, `metrics`. Their URLs hold tokens, and are never shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field

from bridge.settings.values.checked import wrong
from bridge.settings.values.section import FilePath, Section

Kind = Literal["failed", "recovered", "stale", "rejects", "empty", "volume", "drift", "differs"]
"""The kinds of facts; docs/alerts.md says what each means."""
_SHORTEST_TOKEN = 8
"""Shorter parts of a URL, such as `channel`, are words that other texts have, too."""


def _receiver_url(value: Any) -> Any:
    if isinstance(value, str) and not urlsplit(value).scheme:
        raise wrong("must be a URL", hint="such as slack://token, mailto://user:password@host or json://host/path")
    return value


def _http_url(value: Any) -> Any:
    if isinstance(value, str) and not (value.startswith(("http://", "https://")) and urlsplit(value).netloc):
        raise wrong("must be a URL", hint="such as http://localhost:5000/api/v1/lineage")
    return value


class Notification(Section):
    """A receiver of notifications. Needs the extra `notify`."""

    url: Annotated[str, BeforeValidator(_receiver_url)] = Field(repr=False)
    """Where they go, as apprise writes it: `slack://...`, `mailto://...`, `json://...`. Nothing shows it."""
    on: list[Kind] = Field(
        default=["failed", "recovered", "stale", "rejects", "volume", "drift", "differs"], min_length=1
    )
    """Facts: `failed`, `recovered`, `stale`, `rejects`, `empty`, `volume`, `drift`. Default: all but `empty`."""


class OpenLineage(Section):
    """Where each run is reported as OpenLineage events."""

    url: Annotated[str, BeforeValidator(_http_url)] = Field(repr=False)
    """The whole address that takes the events: `http://localhost:5000/api/v1/lineage`, `https://user:password@host/path`."""
    namespace: str = "singer-bridge"
    """The namespace of the jobs. A job is called as its pipeline."""


class Metrics(Section):
    """Figures of each pipeline for Prometheus. Needs the extra `metrics`."""

    textfile: FilePath = None
    """The folder that node_exporter's `--collector.textfile.directory` names: after each run the pipeline's file
    `singer_bridge_<pipeline>.prom` is replaced in it."""


def secrets_of(notify: Sequence[Notification], openlineage: OpenLineage | None) -> Iterator[str]:
    """Yield what no text may show of the receivers' URLs: each as a whole, and its parts that may be a token."""
    for url in [*(each.url for each in notify), *([openlineage.url] if openlineage else [])]:
        yield url
        parts = urlsplit(url)
        query = [text.partition("=")[2] for text in parts.query.split("&")]
        if "@" in parts.netloc:
            yield from (parts.username or "", parts.password or "")
        # An HTTP address has a host; in `slack://TOKEN/...` the host is a token, too.
        host = [] if parts.scheme in ("http", "https", "json", "jsons") else [parts.netloc]
        for text in (*host, *parts.path.split("/"), *query):
            if len(text) >= _SHORTEST_TOKEN:
                yield from (text, unquote(text))
