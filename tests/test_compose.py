"""The compose file beside the product: the commands and variables that it has are those that ours understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from bridge.cli import cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "singer-bridge"}
SETTINGS = (ROOT / "deploy/bridge.yaml").read_text()
VERBS = ("up", "run", "logs", "down")
OTHERS_READ = {
    "AWS_ACCESS_KEY_ID": "any client of S3",
    "AWS_SECRET_ACCESS_KEY": "any client of S3",
    "AWS_REGION": "any client of S3",
    "PGPASSWORD": "libpq",
    "SPARK_DAEMON_MEMORY": "Spark's scripts",
}


def _examples() -> list[list[str]]:
    """The header's commands: the profile or nothing, the verb, then its words without options of docker compose."""
    examples = []
    for line in re.findall(r"^# +docker compose (.*)", TEXT, re.MULTILINE):
        words = shlex.split(line, comments=True)
        profile = words[1] if words[0] == "--profile" else ""
        verb, *rest = words[2:] if profile else words
        while rest and rest[0].startswith("--"):
            del rest[0]
        examples.append([profile, verb, *rest])
    return examples


EXAMPLES = _examples()


def test_the_header_shows_a_whole_life() -> None:
    """Starting, loading, changing, looking on, and forgetting: the tests below have something to look at."""
    assert {example[1] for example in EXAMPLES} == set(VERBS)
    assert {tuple(example[:3]) for example in EXAMPLES} >= {("", "run", "bridge"), ("", "run", "flights")}
    assert any(example[:2] == ["s3", "up"] for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
def test_the_header_names_services_of_its_profile(example: list[str]) -> None:
    profile, verb, *rest = example
    for name in rest[:1] if verb == "run" else rest:
        assert SERVICES[name].get("profiles", [profile]) == [profile], name


def _calls() -> list[list[str]]:
    """The words that our own command gets, from services and from the header."""
    started = [service["command"] for service in OURS.values() if "entrypoint" not in service]
    return started + [example[3:] for example in EXAMPLES if example[1:3] == ["run", "bridge"]]


@pytest.mark.parametrize("words", _calls(), ids=" ".join)
def test_our_command_line_takes_the_words(words: list[str]) -> None:
    """Commands and options exist; the pipeline and the environment that they name are in deploy/bridge.yaml."""
    command: click.Command = cli
    context, rest = click.Context(cli), list(words)
    while isinstance(command, click.Group):
        name, verb, rest = command.resolve_command(context, rest)
        assert verb
        command, context = verb, click.Context(verb, parent=context, info_name=name)
    context = command.make_context(words[0], rest)
    settings = yaml.safe_load(SETTINGS)
    names = context.params.get("names") or [context.params.get("name")]
    assert set(names) <= {*settings["pipelines"], None}
    assert context.meta.get("bridge.environment") == ("s3" if "s3" in words else None)
    assert "s3" in settings["environments"]


def _read_by_us(name: str) -> set[str]:
    """The variables that a service's settings and script ask for."""
    script = SERVICES[name].get("entrypoint", [""])[-1]
    text = (ROOT / "deploy" / Path(script).name).read_text() if script.startswith("/opt/deploy") else ""
    if "entrypoint" not in SERVICES[name]:
        text = SETTINGS
    return set(re.findall(r"(?:\$\{|environ\[\")(\w+)", text))


@pytest.mark.parametrize("name", OURS)
def test_a_service_gets_the_variables_that_it_reads(name: str) -> None:
    """All of them, and none that nobody reads: a misspelt one is both."""
    given = set(SERVICES[name]["environment"])
    assert _read_by_us(name) <= given
    assert given - _read_by_us(name) <= set(OTHERS_READ)


def test_health_is_asked_for_where_the_service_listens() -> None:
    """The port of each check is one that the command has just been given."""
    for name, service in OURS.items():
        if "healthcheck" in service:
            host, port = re.findall(r"\('([\w-]+)', (\d+)\)", service["healthcheck"]["test"][-1])[0]
            assert port in service["command"], name
            assert host in (name, "localhost")


def test_what_is_published_is_what_listens() -> None:
    """Inside and outside have the same number, and the number stands in the command or is the service's own."""
    for name, service in OURS.items():
        for published in service.get("ports", ()):
            _, outside, inside = published.split(":")
            assert outside == inside
            assert inside in service["command"] or name == "bridge"
