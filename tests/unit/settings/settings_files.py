"""bridge.yaml as the tests of settings write it, and what holds for each refusal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.errors import SettingsError
from bridge.settings.load import Settings

PASSWORD = "hunter2-longer"
Load = Callable[..., Settings]

GOOD = """\
pipelines:
  flights:
    source:
      tap: tap-postgres
    destination:
      bucket: ./lake
"""


def _indented(text: str, width: int) -> str:
    return "".join(f"{' ' * width}{line}\n" for line in text.splitlines())


def pipeline_text(source: str = "", destination: str = "", more: str = "") -> str:
    """Return GOOD with lines added: source from line 5, then destination, then keys of the pipeline."""
    head, tail = GOOD.split("    destination:\n")
    return head + _indented(source, 6) + "    destination:\n" + tail + _indented(destination, 6) + _indented(more, 4)


def file_text(source: str, more: str = "") -> str:
    """Return GOOD with lines added to the source, from line 5, and to the pipeline."""
    return pipeline_text(source=source, more=more)


def refused(act: Callable[[], object], kind: type[SettingsError] = SettingsError) -> SettingsError:
    """Return the error, after checking what holds for each: exit code 2, a hint, no secret."""
    with pytest.raises(SettingsError) as caught:
        act()
    error = caught.value
    assert type(error) is kind
    assert error.exit_code == 2
    assert error.hint
    assert PASSWORD not in error.message + error.hint
    return error
