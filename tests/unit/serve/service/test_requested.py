"""The flags that a run of the service may have."""

from __future__ import annotations

import pytest

from bridge.errors import SettingsError
from bridge.serve.service.requested import read_request
from bridge.settings.values.request import Request


@pytest.mark.parametrize(
    ("flags", "request_"),
    [
        ("", Request()),
        ("--full --append", Request(full=True, append=True)),
        ("--resume --no-guard", Request(resume=True, guard=False)),
        ("--stream a -s b --refresh-catalog", Request(streams=("a", "b"), refresh_catalog=True)),
    ],
)
def test_flags(flags: str, request_: Request) -> None:
    """They mean what they mean to `run`."""
    assert read_request(tuple(flags.split())) == request_


@pytest.mark.parametrize(("flags", "hint"), [("--ful", "--full"), ("--append", "plain run"), ("--stream", "next word")])
def test_what_is_refused(flags: str, hint: str) -> None:
    """Before anything starts, with what is meant."""
    with pytest.raises(SettingsError) as caught:
        read_request(tuple(flags.split()))
    assert hint in caught.value.hint
