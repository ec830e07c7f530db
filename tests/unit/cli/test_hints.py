"""Every command in a text of the product is one that the command line has: its verb, its flags, their values."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from bridge.cli import cli
from bridge.load.run.tables.undeclared import refusal
from bridge.protocol.singer.replication import yaml_text, yaml_value
from bridge.settings.commands import full_run, pipeline_arguments, reload, selecting
from tests.unit.conftest import Load

BRIDGE = Path(__file__).parents[3] / "bridge"
VALUE = "\0"
"""Stands for what an f-string fills in."""
PROSE = {"works", "in"}
"""What follows the product's name in sentences, after a colon."""
COMMAND = re.compile(r"(?P<mark>`|: )?singer-bridge (?P<words>[^`\n;]+)")


def texts() -> Iterator[tuple[str, str]]:
    """All texts of the product's code, docstrings too, each with its place."""
    for path in sorted(BRIDGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.relative_to(BRIDGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                yield place, "".join(str(v.value) if isinstance(v, ast.Constant) else VALUE for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value


def words_of(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # prose, with an apostrophe
        return command.split()


def wrong(words: str, *, is_marked: bool) -> str:
    """What the command line does not have of a command; empty if it is one, or no command at all."""
    tokens = [token.partition(VALUE)[0] if token != VALUE else "NAME" for token in words_of(words)]
    context = click.Context(cli)
    command: click.Command | None = cli.get_command(context, tokens[0].rstrip(",.:)"))
    if command is None:
        is_verb = is_marked and tokens[0].isalpha() and tokens[0].islower() and tokens[0] not in PROSE
        return f"no verb {tokens[0]}" if is_verb else ""
    rest = tokens[1:]
    if isinstance(command, click.Group) and rest and rest[0].isalpha():
        name, rest = rest[0], rest[1:]
        sub = command.get_command(context, name)
        if sub is None:
            return f"no verb {tokens[0]} {name}" if is_marked else ""
        command = sub
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"-h"}
    flags = [token.rstrip(".)'\"") for token in rest if re.match(r"--?[a-z]", token)]
    return ", ".join(flag for flag in flags if flag.partition("=")[0] not in names)


def test_every_command_in_a_text_is_one() -> None:
    """Verbs and flags are those of the command line, and no comma sticks to a flag that somebody copies."""
    found, count = list[str](), 0
    for place, text in texts():
        for match in COMMAND.finditer(text):
            count += 1
            if problem := wrong(match["words"], is_marked=match["mark"] is not None):
                found.append(f"{place}: singer-bridge {match['words']!r}: {problem}")
    assert count > 150
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("words", "problem"),
    [("run p --ful", "--ful"), ("rnu p", "no verb rnu"), ("state gte p", "no verb state gte"), ("run p --full", "")],
)
def test_what_is_no_command_is_found(words: str, problem: str) -> None:
    """The test above sees a wrong verb, a wrong verb of a group, and a wrong flag."""
    assert wrong(words, is_marked=True) == problem


OF_A_SOURCE = re.compile(r"(?:(?:^| )(?:-s|--stream|--exclude|--rm|--to|--view)[ =]|singer-bridge [^`\n]*'!?)$")
"""What stands before a value of a command that a source, a bucket or a user names as it likes."""


def unquoted(code: str) -> list[str]:
    """The values in f-strings that a shell would read as more than a word."""
    result = []
    for node in ast.walk(ast.parse(code)):
        before = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                result += [value] if OF_A_SOURCE.search(before) and "quote(" not in value else []
                before += VALUE
            else:
                before += str(part.value) if isinstance(part, ast.Constant) else ""
    return result


def test_a_name_is_one_word_for_the_shell() -> None:
    """A stream may be called `x; touch y`: wherever a text names it in a command, it is quoted as the shell does."""
    reasons = (
        "cli/state/change.py",
        "cli/state/exchange.py",
        "serve/service/web/actions.py",
    )  # what a commit says of itself
    files = [path for path in sorted(BRIDGE.rglob("*.py")) if not str(path).endswith(reasons)]
    assert not {str(path): values for path in files if (values := unquoted(path.read_text()))}
    assert (
        unquoted('f"run p --full -s {stream}"')
        == unquoted("""f"singer-bridge select {p} '!{stream}'" """)
        == ["stream"]
    )
    assert pipeline_arguments("p", "./a b", piped=True) == "--to './a b' --name p"
    assert shlex.split(selecting("p", "!it's; touch x")) == ["singer-bridge", "select", "p", "!it's; touch x"]


def test_a_name_is_a_name_in_bridge_yaml(settings: Load) -> None:
    """Pasted below `streams`, a stream's name adds no other key, and starts no command."""
    name = 'a": {load_method: "${cmd:touch x}"}, "b'
    text = "pipelines: {p: {source: {tap: t}, destination: {bucket: b}, streams: {STREAMS}}}"
    line = f"{yaml_text(name)}: {{replication_method: FULL_TABLE}}"
    pipeline = settings(text.replace("STREAMS", line)).pipeline("p")
    assert list(pipeline.streams) == [name]
    assert name not in str(refusal(pipeline, [name]).hint)
    assert yaml.safe_load(f"[{yaml_value(name)}]") == [name.replace("${", "$${")]


def test_a_stream_with_blanks_is_quoted(settings: Load) -> None:
    """What is printed can be typed; a stream that is set to append-only is said, as `--full` is refused for it."""
    assert shlex.split(full_run("p", ["a b", "c"]))[4:] == ["-s", "a b", "-s", "c"]
    text = "pipelines: {p: {source: {tap: t}, destination: {bucket: b}, streams: {log: {load_method: append-only}}}}"
    pipeline = settings(text).pipeline("p")
    assert reload(pipeline, ["a"]) == "singer-bridge run p --full -s a"
    assert reload(pipeline, ["a", "log"]).startswith("set load_method: auto for log, then singer-bridge run p --full")
    marked = reload(pipeline, ["log"], mark="`")
    assert marked == "set load_method: auto for log, then `singer-bridge run p --full -s log`"


def test_a_pipeline_whose_tap_another_program_starts(settings: Load) -> None:
    """No `singer-bridge run` can be typed there: the tap is to send all rows, into a table that is replaced."""
    text = "pipelines: {p: {source: {tap: t}, destination: {bucket: b}, streams: {log: {load_method: append-only}}}}"
    pipeline = settings(text).pipeline("p")
    assert reload(pipeline, ["a"], piped=True) == "start the tap without a STATE"
    again = reload(pipeline, ["log"], piped=True)
    assert again == "set load_method: overwrite for log, then start the tap without a STATE"
