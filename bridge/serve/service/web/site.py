"""The site: every page and every answer of the API starts from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.errors import BridgeError, CommitLost, LakeError, PipelineHeld, SettingsError, did_you_mean
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, any_run, is_run_id
from bridge.serve.service.bucket_pool import BucketPool
from bridge.serve.service.runs import LiveRun, Runs
from bridge.serve.service.web.auth.access import LoginRules
from bridge.serve.service.web.hub import Hub
from bridge.serve.service.web.pipeline_status import PipelineStatus
from bridge.serve.service.web.pipelines import ListedPipeline, ServedPipelines
from bridge.serve.service.web.scrape import Scrape
from bridge.serve.service.web.watch import Watch

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
_AT_ONCE = 40
"""Pages that are made at once."""


@dataclass(frozen=True, slots=True)
class Site:
    """The parts of one service's page."""

    pipelines: ServedPipelines
    runs: Runs
    watch: Watch
    access: LoginRules
    hub: Hub
    scrape: Scrape = field(default_factory=Scrape)
    calls: BucketPool = field(default_factory=lambda: BucketPool("page", _AT_ONCE))

    def shown(self, key: str) -> ListedPipeline:
        """The pipeline with this name. Raises 404 for one that neither the file nor its buckets have."""
        shown = self.pipelines.get(key)
        if shown is None:
            hint = did_you_mean(key, self.pipelines.all())
            raise HTTPException(404, f"there is no such pipeline{f': {hint}' if hint else ''}")
        return shown

    def sight(self, shown: ListedPipeline) -> PipelineStatus:
        """How a pipeline stands now, for a page that reads its bucket. Raises `LakeError` if that does not answer."""
        sight = self.watch.one(shown)
        if sight.is_silent and sight.error:
            raise sight.error
        return sight

    def run(self, shown: ListedPipeline, run_id: str) -> tuple[RunRecord | None, LiveRun | None]:
        """A run, in the bucket and among those under way here. Raises 404 if it is in neither."""
        live = next((run for run in self.watch.live(shown.key) if run.has_id(run_id)), None)
        log, record = shown.lake, None
        if is_run_id(run_id):
            record = any_run(log.storage, log.pipeline, run_id)
        if record is None and live is None:
            reason = self.runs.not_run(run_id)
            text = f"the run never started: {reason}" if reason else "the oldest go after `retention.runs`"
            raise HTTPException(404, f"there is no such run; {text}")
        return current(log.storage, record) if record else None, live


def site_of(request: Request) -> Site:
    """The site that a request is for."""
    site: Site = request.app.state.site
    return site


def blocking(work: Callable[[Request], Response]) -> Endpoint:
    """An endpoint that reads a bucket: it works in a thread, so that others need not wait, nor the service's end."""

    async def endpoint(request: Request) -> Response:
        try:
            return await asyncio.wrap_future(site_of(request).calls.submit(work, request))
        except asyncio.CancelledError:
            raise HTTPException(503, "the service ends") from None

    endpoint.__name__, endpoint.__doc__ = work.__name__, work.__doc__
    return endpoint


def number(text: str) -> int | None:
    """The number that a request has; None if it is none, or has more digits than any commit."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def form(request: Request, name: str) -> str:
    """The value that a form has for a field; empty if it does not have the field."""
    return next(iter(request.scope["state"]["form"].get(name, [])), "")


def forms(request: Request, name: str) -> list[str]:
    """All that a form says of a field."""
    return [text for text in request.scope["state"]["form"].get(name, []) if text]


def status_of(error: BridgeError) -> int:
    """The HTTP status of an error."""
    kinds: list[tuple[Any, int]] = [(PipelineHeld, 409), (CommitLost, 409), (SettingsError, 400), (LakeError, 503)]
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)
