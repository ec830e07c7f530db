"""Each flag of each verb by an environment variable as well; wrong values say where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from bridge.cli import cli, main
from tests.support.shell import Done, Typed, leaves

LEAVES = leaves()

SETTINGS = """
pipelines:
  flights: {source: {tap: tap-smoke, config: {no_output: true, streams: [{name: users}]}}, destination: {bucket: lake}}
"""


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    """A folder with a bridge.yaml."""
    (folder / "bridge.yaml").write_text(SETTINGS)


@pytest.mark.parametrize("words", LEAVES)
def test_every_flag_has_its_variable_and_help_says_so_once(words: str, typed: Typed) -> None:
    """`--a-flag` of `a verb` is `SINGER_BRIDGE_A_VERB_A_FLAG`, whatever its parameter is called inside."""
    shown = typed(f"{words} --help").out
    prefix = f"SINGER_BRIDGE_{words}".upper().replace(" ", "_")
    assert shown.endswith(f"Every option is also a variable: {prefix}_<OPTION>\n")
    assert shown.count("SINGER_BRIDGE_") == 1
    for option in LEAVES[words].params:
        for flag in option.opts:
            if isinstance(option, click.Option) and flag.startswith("--") and not option.hidden:
                name = f"SINGER_BRIDGE_{words}_{flag[2:]}".upper().replace("-", "_").replace(" ", "_")
                assert name in (option.envvar or ())


@pytest.mark.parametrize("words", LEAVES)
def test_every_verb_has_the_common_flags(words: str) -> None:
    """`-q`, `-v` and `--log-format` are there for all, whoever wrote the verb."""
    assert {"-q", "--quiet", "-v", "--verbose", "--log-format"} <= {f for p in LEAVES[words].params for f in p.opts}


def test_quiet_and_verbose(typed: Typed) -> None:
    """`-q` leaves errors only; `-v` shows where an error came from."""
    assert typed("run -q").out == ""
    assert typed("runs list").out
    assert typed("runs list -q") == Done(0, "", "")
    assert typed("runs list nobody -q").err.startswith("error: unknown pipeline")
    assert "Traceback" in typed("runs list nobody -v").err


def test_a_variable_of_no_flag_is_refused(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip of the pen in a variable's name is exit 2, not a flag that silently is not there."""
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_LIMITS", "1")
    refused = typed("runs list")
    assert refused.code == 2
    assert "SINGER_BRIDGE_RUNS_LIST_LIMITS" in refused.err
    assert "SINGER_BRIDGE_RUNS_LIST_LIMIT" in refused.err.split("hint:")[1]
    assert typed("run -q").code == 0  # it is no business of another verb's


def test_variables_set_flags(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a switch and a path by variable, of the verb or of all verbs; what is typed wins."""
    for _ in range(3):
        assert typed("run -q").code == 0
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_LIMIT", "2")
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_JSON", "1")
    assert len(json.loads(typed("runs list").out)) == 2
    assert len(json.loads(typed("runs list --limit 3").out)) == 3
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_JSON", "false")
    assert typed("runs list").out.startswith("run ")
    monkeypatch.setenv("SINGER_BRIDGE_FILE", "nowhere.yaml")
    assert "nowhere.yaml" in typed("runs list").err
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_FILE", "bridge.yaml")
    assert typed("runs list").code == 0


@pytest.mark.parametrize("value", ["many", "0", "1.5"])
def test_a_bad_value_in_a_variable_names_the_variable(
    value: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the flag would refuse is exit 2, with the variable's name and the flag that it stands for."""
    monkeypatch.setenv("SINGER_BRIDGE_RUNS_LIST_LIMIT", value)
    done = typed("runs list")
    assert done.code == 2
    assert "error: SINGER_BRIDGE_RUNS_LIST_LIMIT: " in done.err
    assert "stands for --limit of `singer-bridge runs list`" in done.err
    assert typed(f"runs list --limit {value}").err.startswith("error: --limit: ")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SINGER_BRIDGE_RUN_FULL", "maybe"),
        ("SINGER_BRIDGE_RUN_TIMEOUT", "10 minutes"),
        ("SINGER_BRIDGE_RUN_WAIT", "0s"),
        ("SINGER_BRIDGE_RUN_LOAD_METHOD", "sideways"),
        ("SINGER_BRIDGE_RUN_STATE", "no-such-file.json"),
        ("SINGER_BRIDGE_RUN_LOG_FORMAT", "xml"),
        ("SINGER_BRIDGE_LOG_FORMAT", "xml"),
    ],
)
def test_every_kind_of_bad_value_names_its_variable(
    variable: str, value: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the mistake, the parser or the verb itself: exit 2, and the variable is named."""
    monkeypatch.setenv(variable, value)
    done = typed("run --tap tap-smoke --to lake --name x" if "METHOD" in variable else "run")
    assert done.code == 2
    assert variable in done.err


def test_a_bad_value_is_named_in_the_json_object_too(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --json` has its own error; the variable stands in its hint."""
    monkeypatch.setenv("SINGER_BRIDGE_RUN_STATE", "no-such-file.json")
    done = typed("run --json")
    assert done.code == 2
    assert "SINGER_BRIDGE_RUN_STATE" in json.loads(done.out)["error"]["hint"]
    monkeypatch.delenv("SINGER_BRIDGE_RUN_STATE")
    monkeypatch.setenv("SINGER_BRIDGE_RUN_RESUME", "1")
    done = typed("run --full --json")
    assert done.code == 2
    assert "SINGER_BRIDGE_RUN_RESUME" in json.loads(done.out)["error"]["hint"]


def test_an_environment_in_a_variable_does_not_forbid_a_bucket(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--env` with `--to` is refused, as it would be ignored; a variable for all verbs is nobody's mistake."""
    assert typed("run -q").code == 0
    monkeypatch.setenv("SINGER_BRIDGE_ENV", "prod")
    assert typed("runs list --to lake --name flights").code == 0
    refused = typed("runs list --to lake --name flights --env prod")
    assert (refused.code, "--env" in refused.err) == (2, True)


def test_errors_are_objects_where_stderr_is_for_a_program(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--log-format json` wrong usage, a wrong setting and a wrong variable are one JSON object a line each."""
    for line in (
        "runs list --log-format json --no-such-flag",
        "runs list nobody --log-format=json",
        "no-such-verb --log-format json",
    ):
        done = typed(line)
        event = json.loads(done.err)
        assert (done.code, event["event"], event["level"], event["exit_code"]) == (2, "error", "error", 2)
        assert event["message"]
    monkeypatch.setenv("SINGER_BRIDGE_LOG_FORMAT", "json")
    assert json.loads(typed("runs list nobody").err)["hint"]
    assert typed("runs list nobody --log-format text").err.startswith("error: ")


def test_help_has_four_groups_and_every_verb() -> None:
    """The verbs come in groups, each once, each with a line on what it does; all of it fits a screen."""
    context = click.Context(cli, terminal_width=80)
    text = cli.get_help(context)
    groups = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert groups == ["Set up", "Run", "Look", "Repair"]
    verbs = cli.list_commands(context)
    assert len(verbs) == len(set(verbs))
    assert all(f"\n  {verb} " in text for verb in verbs)
    assert len(text.splitlines()) <= 40
    assert all(len(line) <= 80 for line in text.splitlines())
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("statsu", 'no verb "statsu"', 'did you mean "status"? singer-bridge -h lists them'),
        ("rnu", 'no verb "rnu"', 'did you mean "run"? singer-bridge -h lists them'),
        ("tabels show", 'no verb "tabels"', 'did you mean "tables"? singer-bridge -h lists them'),
        ("runs lsit", 'no verb "runs lsit"', 'did you mean "list"? singer-bridge runs -h lists them'),
        ("qqqq", 'no verb "qqqq"', "singer-bridge -h lists them"),
        ("validate", 'no verb "validate"', "ours: singer-bridge config check; singer-bridge -h lists them"),
        ("help run", 'no verb "help"', "singer-bridge -h shows all verbs, singer-bridge run -h one"),
        ("run --ful", "no option --ful", 'did you mean "--full"? singer-bridge run -h lists them'),
        ("runs list a b", "got unexpected extra argument (b)", "singer-bridge runs list -h shows what it takes"),
        ("runs list --limit", "option '--limit' requires an argument", "-h shows what it takes"),
        ("add x", "missing option '--tap'", "singer-bridge add -h shows what it takes"),
    ],
)
def test_wrong_usage_has_the_shape_of_every_error(typed: Typed, line: str, error: str, hint: str) -> None:
    """A verb or flag that does not exist is guessed; words of other tools name ours; exit code 2."""
    assert typed(line) == Done(2, "", f"error: {error}\nhint: {hint}\n")
