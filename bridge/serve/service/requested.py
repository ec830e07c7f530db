"""The flags of `singer-bridge run` that a run of the service may have."""

from __future__ import annotations

from typing import Any

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.values.request import FLAGS, Request

SWITCHES = {flag.words[0]: name for name, flag in FLAGS.items() if "service" in flag.doors}
"""The field that each sets."""
_STREAMS = ("--stream", "-s")


def read_request(options: tuple[str, ...]) -> Request:
    """The request that flags make, each a word, a value the next one. Raises `SettingsError`."""
    values: dict[str, Any] = {}
    streams = []
    words = iter(options)
    for word in words:
        if word in _STREAMS:
            stream = next(words, None)
            if stream is None:
                raise SettingsError("--stream needs a name", hint="give it as the next word")
            streams.append(stream)
        elif word in SWITCHES:
            values[SWITCHES[word]] = not word.startswith("--no-")
        else:
            flags = [*SWITCHES, _STREAMS[0]]
            hint = did_you_mean(word, flags) or f"there are {', '.join(flags)}"
            raise SettingsError("a run of the service has no such flag", hint=hint, flag=word)
    return Request(streams=tuple(streams), **values)
