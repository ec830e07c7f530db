"""`service` at the top of bridge.yaml: only `serve` needs it to be right; what is wrong is refused with its line."""

from __future__ import annotations

import pytest

from bridge.settings.service import Service
from tests.unit.settings.settings_files import GOOD, Load, refused


def test_defaults_and_values(settings: Load) -> None:
    """Nothing needs to be written; variables are filled in, and the token is in no text of the settings."""
    assert settings(GOOD).service == Service(host="127.0.0.1", port=8765, token=None, max_runs=2)
    text = "service:\n  host: 0.0.0.0\n  port: ${PORT:-80}\n  token: ${TOKEN:-hunter2-longer}\n  max_runs: 5\n"
    service = settings(GOOD + text).service
    assert (service.host, service.port, service.token) == ("0.0.0.0", 80, "hunter2-longer")
    assert service.max_runs == 5
    assert "hunter2" not in repr(service)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{port: 70000}", "must be at most 65535 key=service.port"),
        ("{port: x}", "must be a whole number key=service.port"),
        ("{max_runs: 0}", "must be at least 1 key=service.max_runs"),
        ("{token: '${NOWHERE}'}", "variable is not set variable=NOWHERE key=service.token"),
    ],
)
def test_a_wrong_value_is_the_services_alone(text: str, error: str, settings: Load) -> None:
    """`run` does not read the section, so that a job without the token's variable still runs."""
    written = settings(f"{GOOD}service: {text}\n")
    assert written.pipeline(None).name == "flights"
    assert error in refused(lambda: written.service).message


@pytest.mark.parametrize(
    ("text", "error"), [("x", "must be a mapping"), ("{ports: 1}", "unknown key service.ports"), ("", "a mapping")]
)
def test_a_wrong_section_is_everybodys(text: str, error: str, settings: Load) -> None:
    """As any unknown key of the file."""
    problem = refused(lambda: settings(f"{GOOD}service: {text}\n"))
    assert error in problem.message
    assert f"bridge.yaml:{GOOD.count(chr(10)) + 1}:" in problem.message
