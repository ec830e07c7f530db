"""`service`, at the top of bridge.yaml: how `singer-bridge serve` works. No other verb reads it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError

from bridge.errors import SettingsError
from bridge.settings.explain import InFile, explained
from bridge.settings.text.tree import Expand, Node, resolve
from bridge.settings.values.section import Section


class Service(Section):
    """The settings of `singer-bridge serve`, beside the pipelines' schedules."""

    host: str = "127.0.0.1"
    """The address of its page and its HTTP API. Any but a loopback address needs a `token`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    """The port of its page. `0`: a free one, which the service prints."""
    token: str | None = Field(default=None, repr=False)
    """The secret that opens the page and the API to a user or a program. Default: none, for loopback addresses only."""
    max_runs: Annotated[int, Field(ge=1)] = 2
    """How many runs there may be at once; others wait until one ends."""


def read_service(node: Node | None, expand: Expand) -> tuple[Service | None, list[SettingsError]]:
    """The section, or all that is wrong with it, in reading order."""
    if node is None:
        return Service(), []
    document = resolve(node, expand)
    problems = [error for _, error in document.problems]
    try:
        service = Service.model_validate(document.data)
    except ValidationError as error:
        unset = document.unknown
        problems += [one for key, one in explained(error, InFile(document)) if key not in unset]
        return None, problems
    return (None, problems) if problems else (service, [])
