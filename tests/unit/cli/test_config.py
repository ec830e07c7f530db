"""`config`: every problem at once, what the settings come to without a secret, and the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bridge.settings.effective import effective, to_yaml
from bridge.settings.json_schema import SCHEMA_FILE
from bridge.settings.load import check, load
from tests.support.shell import Words, type_words
from tests.unit.settings.settings_files import GOOD, PASSWORD, Load, pipeline_text

WRONG = """\
defaults:
  comit: {}
environments:
  prod:
    pipelines:
      flights: {source: {config: {a: "${ONLY_PROD}"}}}
  dev: {defaults: {destination: {path: ../x}}}
pipelines:
  flights:
    source: {tap: x, config: {a: "${A}", b: "${B}"}, idle_timeout: "${T}"}
    destination: {bucket: lake, compression: rar}
  planes:
    source: {config: gone.json}
    destination: {bucket: lake}
  other:
    source: {tap: x, config: gone.json}
    destination: {bucket: lake, path: own}
  fl ights: {}
"""


@pytest.fixture
def bridge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Words:
    """Type a command in a folder with this bridge.yaml; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("SINGER_BRIDGE_ENV", "A", "B", "T", "ONLY_PROD"):
        monkeypatch.delenv(name, raising=False)

    def type_in(text: str, *words: str) -> tuple[int, str, str]:
        (tmp_path / "bridge.yaml").write_text(text)
        return type_words(capsys, "config", *words)

    return type_in


def test_check_lists_every_problem_once(bridge: Words) -> None:
    """Several mistakes in several pipelines and environments are all told, each once, with exit code 2."""
    code, out, err = bridge(WRONG, "check", "--json")
    found = json.loads(out)["problems"]
    assert (code, err) == (2, "")
    assert [problem["message"].split(" key=")[0] for problem in found if not problem["environment"]] == [
        "bridge.yaml:18: not a name for a pipeline",
        "bridge.yaml:2: unknown key defaults.comit",
        "bridge.yaml:10: variable is not set variable=A",
        "bridge.yaml:10: variable is not set variable=B",
        "bridge.yaml:10: variable is not set variable=T",
        "bridge.yaml:11: must be zstd, snappy, gzip, lz4 or none",
        "bridge.yaml:13: missing key",
        "bridge.yaml:13: cannot read the tap's settings",
        "bridge.yaml:16: cannot read the tap's settings",
    ]
    assert [(p["message"].split(" key=")[0], p["environment"], p["pipeline"]) for p in found if p["environment"]] == [
        ("bridge.yaml:6: variable is not set variable=ONLY_PROD", "prod", "flights"),
        ("bridge.yaml:7: no part of the path may start with a dot", "dev", "flights"),
    ]
    assert all(problem["hint"] for problem in found)


def test_check_for_people(bridge: Words) -> None:
    """Each problem is one line that an editor can jump to, with what to do below."""
    code, out, _ = bridge(WRONG, "check")
    assert code == 2
    assert '✗ bridge.yaml:2: unknown key defaults.comit\n  did you mean "commit"?\n' in out
    assert "in prod:\n✗ bridge.yaml:6: " in out
    assert out.endswith("11 problems\n")


def test_check_of_one_environment(bridge: Words) -> None:
    """`--env` checks the file as that environment sees it, and no other."""
    text = GOOD + "environments: {prod: {defaults: {comit: {}}}, dev: {}}\n"
    assert bridge(text, "check", "--env", "dev")[:2] == (0, "✓ bridge.yaml: 1 pipeline, in dev\n")
    assert bridge(text, "check", "--env", "prod")[0] == 2
    assert bridge(text, "check")[0] == 2
    code, _, err = bridge(text, "check", "--env", "prd")
    assert (code, 'did you mean "prod"?' in err) == (2, True)


def test_check_of_settings_that_are_right(bridge: Words) -> None:
    """Nothing wrong is exit code 0 and one line; as JSON it is an empty list."""
    assert bridge(GOOD, "check")[:2] == (0, "✓ bridge.yaml: 1 pipeline, 0 environments\n")
    assert json.loads(bridge(GOOD, "check", "--json")[1])["problems"] == []


def test_a_key_that_every_environment_brings_is_not_missing(tmp_path: Path) -> None:
    """A file that is only ever used with an environment is right; one that lacks a key in one of them is not."""
    path = tmp_path / "bridge.yaml"
    text = GOOD.replace("    destination:\n      bucket: ./lake\n", "")
    environments = "environments:\n  prod: {defaults: {destination: {bucket: /prod}}}\n  dev: "
    path.write_text(f"{text}{environments}{{defaults: {{destination: {{bucket: /dev}}}}}}\n")
    assert check(path, {}) == []
    path.write_text(f"{text}{environments}{{}}\n")
    assert [problem.error.message.split(": ")[1] for problem in check(path, {})] == [
        "missing key key=pipelines.flights.destination"
    ]


def test_check_reports_problems_of_included_files(bridge: Words, tmp_path: Path) -> None:
    """A broken included file does not hide what is wrong with the others."""
    (tmp_path / "a.yaml").write_text("pipelines: [\n")
    (tmp_path / "b.yaml").write_text("pipelines: {b: {}}\n")
    found = json.loads(bridge(GOOD + "include: [a.yaml, b.yaml]\n", "check", "--json")[1])["problems"]
    assert [problem["message"].split(":")[0] for problem in found] == ["a.yaml", "b.yaml", "b.yaml"]


@pytest.mark.parametrize("text", ["pipelines: [", "", "- a\n"])
def test_check_of_a_file_that_cannot_be_read(bridge: Words, text: str) -> None:
    """A file that is no YAML or says nothing is one problem like any other, in JSON too."""
    code, out, err = bridge(text, "check", "--json")
    assert (code, err, len(json.loads(out)["problems"])) == (2, "", 1)


SECRETS = f"""\
config: {{password: abc, url: "postgresql://u:{PASSWORD}@h/d", host: "${{A}}", nested: {{api_key: [1]}}, port: 5}}
env: {{MY_TOKEN: xy, PLAIN: visible}}
pip_url: git+https://u:{PASSWORD}@h/tap
"""


def test_show_masks_secrets(bridge: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither passwords, however short, nor what a variable brought to the tap is printed; the rest is."""
    monkeypatch.setenv("A", "from-a-variable")
    text = pipeline_text(source=SECRETS, more=f"spark: {{conf: {{a.password: {PASSWORD}, b: {PASSWORD}x}}}}")
    for words in ([], ["--all"], ["--json"]):
        code, out, _ = bridge(text, "show", *words)
        assert code == 0
        assert not [secret for secret in (PASSWORD, "abc", "xy", "from-a-variable") if secret in out]
    pipeline = json.loads(out)["pipelines"]["flights"]
    assert pipeline["source"] == {
        "tap": "tap-postgres",
        "pip_url": "git+https://u:***@h/tap",
        "config": {
            "password": "***",
            "url": "postgresql://u:***@h/d",
            "host": "***",
            "nested": {"api_key": "***"},
            "port": 5,
        },
        "env": {"MY_TOKEN": "***", "PLAIN": "visible"},
    }
    assert pipeline["spark"]["conf"] == {"a.password": "***", "b": "***x"}


def test_show_marks_defaults(bridge: Words) -> None:
    """Without `--all` only what somebody wrote is shown; with it each default is marked as one."""
    out = bridge(pipeline_text(more="commit: {every: 5m}"), "show")[1]
    assert "    commit:\n      every: 5m\n" in out
    assert "# default" not in out
    out = bridge(pipeline_text(more="commit: {every: 5m}"), "show", "--all")[1]
    assert "    commit:\n      every: 5m\n      bytes: 256MiB  # default\n" in out


def test_show_in_an_environment(bridge: Words) -> None:
    """The layers are laid over each other, and the name in the bucket is said."""
    text = GOOD + "environments: {prod: {pipelines: {flights: {destination: {bucket: /prod}}}}}\n"
    out = bridge(text, "show", "flights", "--env", "prod")[1]
    assert out.startswith("# environment prod; in the bucket: prod.flights\npipelines:\n  flights:\n")
    assert yaml.safe_load(out)["pipelines"]["flights"]["destination"] == {"bucket": "/prod"}
    assert json.loads(bridge(text, "show", "--json", "--env", "prod")[1])["environment"] == "prod"


def test_show_without_a_file(bridge: Words, tmp_path: Path) -> None:
    """What the command line alone says is shown in the same form; an environment needs a file."""
    code, out, _ = bridge(GOOD, "show", "--to", "lake", "--name", "x")
    destination = {"bucket": str(tmp_path / "lake"), "load_method": "auto"}
    assert (code, yaml.safe_load(out)) == (0, {"pipelines": {"x": {"source": {}, "destination": destination}}})
    code, _, err = bridge(GOOD, "show", "--to", "lake", "--name", "x", "--env", "prod")
    assert (code, "leave --env out" in err) == (2, True)


def test_show_of_what_is_not_there(bridge: Words) -> None:
    """A wrong name is told with the nearest, a wrong pipeline as a run would tell it."""
    code, _, err = bridge(GOOD, "show", "flight")
    assert (code, 'did you mean "flights"?' in err) == (2, True)
    assert "unknown key" in bridge(pipeline_text(source="tapp: x"), "show")[2]


def test_what_is_shown_can_be_read_again(settings: Load, tmp_path: Path) -> None:
    """`config show --all` is a bridge.yaml that means the same, whatever characters stand in it."""
    source = """\
config: {a: "no", b: "5", c: 5, d: "$${X}", e: null, f: [1, "x y", {g: []}], h: "", "i: j": "#k", l: "a\\nb", m: 0x1F}
env: {A: 007}
idle_timeout: null
"""
    more = (
        'streams: {"a*": {load_method: overwrite}}\nschedule: {cron: "@daily"}\nspool: {dir: tmp, max_bytes: 1025MiB}'
    )
    before = settings(pipeline_text(source=source, more=more)).pipeline(None)
    data, defaults = effective(before, every=True)
    again = tmp_path / "again.yaml"
    again.write_text("\n".join(to_yaml({"pipelines": {"flights": data}}, defaults)))
    after = load(again, {}).pipeline(None)
    assert after == before


def test_accounts_with_containers_of_one_name_are_apart(bridge: Words) -> None:
    """Two pipelines with the same tables clash in one account, and not in two."""
    pipeline = (
        "{{source: {{tap: x, select: [a]}}, destination: {{bucket: az://lake, path: t, azure: {{account: {}}}}}}}"
    )
    for other, code in (("sales", 2), ("people", 0)):
        text = f"pipelines:\n  a: {pipeline.format('sales')}\n  b: {pipeline.format(other)}\n"
        done = bridge(text, "check")
        assert (done[0], done[1].count("keep their tables in the same folder")) == (code, int(code == 2))


def test_no_command_is_run(bridge: Words, tmp_path: Path) -> None:
    """`check` and `show` start nothing, show `***` for an output, and check everything else."""
    command = "${cmd:touch started}"
    text = pipeline_text(
        source=f"config: {{password: '{command}', url: 'x://u:{command}@h'}}", more=f"notify: [{{url: '{command}'}}]"
    )
    assert bridge(text, "check")[0] == 0
    code, out, _ = bridge(text, "show")
    shown = yaml.safe_load(out)["pipelines"]["flights"]
    assert (code, shown["source"]["config"]) == (0, {"password": "***", "url": "x://u:***@h"})
    assert shown["notify"][0]["url"] == "***"
    code, out, _ = bridge(text + f"    commit: {{every: '{command}', bytes: x}}\n    comit: {{}}\n", "check")
    assert (code, out.count("✗")) == (2, 2)
    assert not (tmp_path / "started").exists()


def test_the_schema_is_printed(bridge: Words) -> None:
    """`config schema` prints the file that is shipped, byte for byte."""
    assert bridge(GOOD, "schema")[:2] == (0, SCHEMA_FILE.read_text())


def test_a_misspelt_key_is_told_as_one(bridge: Words) -> None:
    """A key that is missing because it is misspelt is one problem, in the run's words as in those of `check`."""
    text = GOOD.replace("destination:", "destinatoin:")
    told = 'bridge.yaml:5: unknown key pipelines.flights.destinatoin\n{}did you mean "destination"?\n'
    assert bridge(text, "check")[1].startswith("✗ " + told.format("  "))
    assert bridge(text, "check")[1].endswith("1 problem\n")
    assert bridge(text, "show", "flights")[2] == "error: " + told.format("hint: ")


def test_one_error_of_several_says_how_to_see_all(bridge: Words) -> None:
    """Of several problems a wrong key is told before a missing one, and the hint counts what `check` prints."""
    text = GOOD.replace("      bucket: ./lake\n", "      {}\n") + "    comit: {}\n"
    _, _, err = bridge(text, "show", "flights")
    assert "unknown key pipelines.flights.comit" in err
    assert err.endswith('did you mean "commit"?; singer-bridge config check shows all 2\n')
    assert bridge(text, "check")[1].endswith("2 problems\n")
