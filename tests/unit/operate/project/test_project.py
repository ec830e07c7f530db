"""bridge.yaml as people wrote it: a pipeline is added, and nothing else moves."""

from __future__ import annotations

import os
import re
import stat
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bridge.errors import SettingsError
from bridge.load.tap.about import About, Setting
from bridge.operate.project.append import append_pipeline
from bridge.operate.project.dotenv import name_variables, set_variables
from bridge.operate.project.entry import Entry
from bridge.operate.project.selection import write_selection
from bridge.settings.load import load
from bridge.settings.text.variables import Variables, read_dotenv

BODY = "  source:\n    tap: tap-x\n"


def appended(folder: Path, text: str) -> str:
    path = folder / "bridge.yaml"
    path.write_bytes(text.encode())
    append_pipeline(path, "new", BODY)
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "pipelines:\n<2>"),
        ("# mine\n", "# mine\n\npipelines:\n<2>"),
        ("pipelines:\n", "pipelines:\n<2>"),
        ("pipelines:\n  # later\n", "pipelines:\n  # later\n\n<2>"),
        ("pipelines:\n    a: {x: 1}   # why\n\n", "pipelines:\n    a: {x: 1}   # why\n\n<4>\n"),
        ("pipelines:\n  a: 1", "pipelines:\n  a: 1\n\n<2>"),
        (
            "pipelines:\n  a:\n    x: 1\n    # y: 2\n\n# of all\ndefaults: {y: 1}\n",
            "pipelines:\n  a:\n    x: 1\n    # y: 2\n\n<2>\n# of all\ndefaults: {y: 1}\n",
        ),
        ("x-a: &a {x: 1}\npipelines:\n  b: *a\n", "x-a: &a {x: 1}\npipelines:\n  b: *a\n\n<2>"),
    ],
)
def test_a_pipeline_goes_to_the_end(tmp_path: Path, before: str, after: str) -> None:
    """It is indented as its neighbours are; comments, blank lines and flow style stay where they were."""
    for depth in (2, 4):
        after = after.replace(f"<{depth}>", textwrap.indent(f"new:\n{BODY}", " " * depth))
    assert appended(tmp_path, before) == after
    assert yaml.safe_load(after)["pipelines"]["new"] == {"source": {"tap": "tap-x"}}


def test_line_breaks_and_rights_stay(tmp_path: Path) -> None:
    """A file from Windows keeps its line breaks, a private one stays private, a link stays a link."""
    real = tmp_path / "real.yaml"
    real.write_bytes(b"pipelines:\r\n  a: 1\r\n")
    real.chmod(0o600)
    (tmp_path / "bridge.yaml").symlink_to(real)
    append_pipeline(tmp_path / "bridge.yaml", "new", BODY)
    assert real.read_bytes().count(b"\r\n") == real.read_bytes().count(b"\n") == 6
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert (tmp_path / "bridge.yaml").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bridge.yaml", "real.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "pipelines: {a: 1}\n",
        "{pipelines: {a: 1}}\n",
        "x-p: &p\n  a: 1\npipelines: *p\n",
        "pipelines:\n  a: 1\n...\n",
        "pipelines:\n  a: |+\n    text\n\n\nx-b: 1\n",
        "pipelines:\n  new: 1\n",
        "[1]\n",
    ],
)
def test_what_cannot_be_appended_to_is_refused(tmp_path: Path, text: str) -> None:
    """Where anything else would change, the file stays as it is, and the hint has the lines to paste."""
    with pytest.raises(SettingsError, match="cannot be appended to") as caught:
        appended(tmp_path, text)
    assert f"new:\n{BODY}" in caught.value.hint
    assert (tmp_path / "bridge.yaml").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["bridge.yaml"]


def setting(name: str, kind: str = "string", **facts: object) -> Setting:
    known = {"required": True, "secret": False, "default": None, "choices": (), "description": ""}
    return Setting(name=name, kind=kind, **(known | facts))  # type: ignore[arg-type]


def config(*settings: Setting, **facts: object) -> tuple[Entry, dict[str, object], str]:
    entry = Entry("tap-x", About("tap-x", "1", (), settings), prefix="tap-x", **facts)  # type: ignore[arg-type]
    return entry, yaml.safe_load(entry.text())["source"]["config"], entry.text()


def test_required_settings_are_written_and_optional_ones_are_comments() -> None:
    """A default is written as such, what nobody can know as a variable, an object empty; the rest to be uncommented."""
    entry, data, text = config(
        setting("host"),
        setting("port", "integer", default=5432),
        setting("retries", "integer"),
        setting("password", secret=True, default="changeme"),
        setting("limits", "object"),
        setting("token", required=False, secret=True),
        setting("start", required=False, description="since " + "when " * 40),
    )
    assert data == {
        "host": "${TAP_X_HOST}",
        "port": 5432,
        "retries": "${TAP_X_RETRIES}",
        "password": "${TAP_X_PASSWORD}",
        "limits": {},
    }
    assert "retries: ${TAP_X_RETRIES} " in text  # unquoted: it is read as a number
    assert entry.variables == ["TAP_X_HOST", "TAP_X_RETRIES", "TAP_X_PASSWORD"]
    assert '\n      # token: "${TAP_X_TOKEN}"   # string\n' in text
    assert "      ## string. since when when" in text
    assert text.count("when") == 40
    assert "\n      # start:\n" in text
    assert max(map(len, text.splitlines())) <= 118  # a file indents them by two more


def test_values_are_read_back_as_they_were_given() -> None:
    """Whatever was typed is the value: quotes, colons, words that YAML knows, and `${` that means itself."""
    values = {"a": "no", "b": "x: y # z", "c": 'say "hi"', "d": "12", "e": "${HOME}", "f": 12, "g": "db.example.com"}
    _, data, text = config(*(setting(name) for name in values), values=values)
    assert data == values | {"e": "$${HOME}"}
    assert "g: db.example.com " in text


def test_names_of_streams_are_no_commands() -> None:
    """A stream that is called `${cmd:...}` is selected by that name: nothing of it is run."""
    text = Entry("tap-x", None, select=["${cmd:touch owned}", "public-*"]).text()
    [first, _] = yaml.safe_load(text)["source"]["select"]
    assert Variables({}).expand(first, Path.cwd()) == ("${cmd:touch owned}", [])


def test_a_tap_without_about_gets_a_place_for_its_settings() -> None:
    """The configuration is empty and says where to look."""
    text = Entry("tap-x", None, pip_url="tap-x==1.2", bucket="${LAKE}").text()
    assert yaml.safe_load(text) == {
        "source": {"tap": "tap-x", "pip_url": "tap-x==1.2", "config": None},
        "destination": {"bucket": "${LAKE}"},
    }
    assert "documentation" in text


def test_a_tap_that_requires_nothing_leaves_a_block_to_uncomment(tmp_path: Path) -> None:
    """`config` has nothing after it: what is uncommented stands where it belongs; its secrets are named as comments."""
    optional = [setting("host", required=False), setting("password", required=False, secret=True)]
    entry, data, text = config(*optional)
    assert data is None
    assert yaml.safe_load(text.replace("# host", "host", 1))["source"]["config"] == {"host": None}
    assert (entry.variables, entry.optional_variables) == ([], ["TAP_X_PASSWORD"])
    example = tmp_path / ".env.example"
    for _ in range(2):
        assert name_variables(example, "x", entry.variables, entry.optional_variables) == []
    assert example.read_text() == "# x\n# TAP_X_PASSWORD=\n"


OPTIONAL = (
    setting("host", required=False, description="Where it is. " * 20),
    setting("port", "integer", required=False, default=5432),
    setting("user", required=False, description="its name: 'x' # or \"y\""),
    setting("password", required=False, secret=True, description="unseen"),
    setting("schemas", "array", required=False),
    setting("tunnel", "object", required=False, description="see https://example.com/" + "x" * 200),
    setting("verify", "boolean", required=False, default=True),
    setting("mode", required=False, default="no", choices=("no", "yes")),
)
MEANT = {
    "host": None,
    "port": 5432,
    "user": None,
    "password": "hush-hush",
    "schemas": [],
    "tunnel": {},
    "verify": True,
    "mode": "no",
}


@pytest.mark.parametrize("selected", [False, True])
def test_each_comment_may_be_uncommented(tmp_path: Path, selected: bool) -> None:
    """Any one line, or all of them, at any time: also after `select` wrote into the file. None of them is cut."""
    path = tmp_path / "bridge.yaml"
    path.write_text("pipelines:\n")
    append_pipeline(path, "shop", config(*OPTIONAL, bucket="lake")[2])
    if selected:
        write_selection(path, ("pipelines", "shop"), ["public-*"])
    lines = path.read_text().splitlines()
    assert "..." not in path.read_text()
    commented = [number for number, line in enumerate(lines) if line.lstrip().startswith("#")]
    assert len(commented) > len(OPTIONAL)
    seen = {}
    for number in commented:
        changed = [*lines[:number], uncommented(lines[number]), *lines[number + 1 :]]
        seen |= loaded(path, changed, selected=selected)
    assert seen == MEANT
    assert loaded(path, [uncommented(line) for line in lines], selected=selected) == MEANT


def uncommented(line: str) -> str:
    """What an editor makes of a line when it takes its comment sign away."""
    return re.sub(r"^(\s*)# ?", r"\1", line)


def loaded(path: Path, lines: list[str], *, selected: bool) -> dict[str, object]:
    """The tap's settings in such a file, which says nothing else than before."""
    path.write_text("\n".join(lines) + "\n")
    pipeline = load(path, {"TAP_X_PASSWORD": "hush-hush"}).pipeline("shop")
    assert pipeline.source.select == (["public-*"] if selected else [])
    assert pipeline.destination.bucket == str(path.parent / "lake")
    assert not isinstance(pipeline.source.config, Path)
    return dict(pipeline.source.config)


def test_of_many_settings_the_file_has_those_to_decide() -> None:
    """The ones by which the tap finds its source, each in a sentence; a line says what prints the others."""
    others = tuple(setting(f"tuning_{number}", required=False, description="Rarely. " * 50) for number in range(100))
    entry, _, text = config(*OPTIONAL, *others, setting("needed", description="What. Why."), name="shop")
    commented = [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]
    assert [line.split(":")[0] for line in commented[2:-1]] == ["# host", "# port", "# user", "# password"]
    assert commented[2] == "# host:   # string. Where it is."
    assert commented[-1] == "## The tap has 104 more settings: singer-bridge config tap shop"
    assert entry.optional_variables == ["TAP_X_PASSWORD"]
    every = "\n".join(entry.all_settings())
    assert (every.count("# tuning_"), every.count("Rarely."), "required: string. What. Why." in every) == (
        100,
        5000,
        True,
    )


def test_an_entry_is_written_anew(tmp_path: Path) -> None:
    """The one that `add` wrote first is replaced, with what was asked for since; what stood above it stays."""
    path = tmp_path / "bridge.yaml"
    path.write_text("pipelines:\n  a: {x: 1}   # why\n")
    before = path.read_bytes()
    entry = Entry("tap-x", None, bucket="lake")
    append_pipeline(path, "new", entry.text())
    more = replace(entry, select=["a", "b*"], streams=["## by id", "a: {load_method: upsert}"])
    append_pipeline(path, "new", more.text(), onto=before)
    text = path.read_text()
    assert text.startswith(before.decode())
    assert "      ## by id\n" in text
    assert yaml.safe_load(text)["pipelines"]["new"] == {
        "source": {"tap": "tap-x", "select": ["a", "b*"], "config": None},
        "destination": {"bucket": "lake"},
        "streams": {"a": {"load_method": "upsert"}},
    }


def test_variables_are_written_once(tmp_path: Path) -> None:
    """A name that the file has is not written again; a secret file is its owner's, and read back as it was given."""
    example, secret = tmp_path / ".env.example", tmp_path / ".env"
    example.write_text("# mine\nexport A=1")
    assert name_variables(example, "sales", ["A", "B", "B"]) == ["B"]
    assert example.read_text() == "# mine\nexport A=1\n# sales\nB=\n"
    password = 'it\'s \\ a $ "secret" #1'
    set_variables(secret, {"P": password})
    set_variables(secret, {"P": "other", "Q": "2"})
    assert read_dotenv(secret) == {"P": password, "Q": "2"}
    assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600


@pytest.mark.parametrize("mark", ["\n", "\r", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("required", [True, False])
def test_what_a_tap_calls_its_settings_starts_no_command(tmp_path: Path, mark: str, required: bool) -> None:
    """Whatever a tap says of itself: the file has its settings and no other key, and no command of its own."""
    evil = f"x{mark}      evil: ${{cmd:touch started}}"
    file, short = tmp_path / "bridge.yaml", f"s{mark}      e: ${{cmd:touch started}}"
    settings = (
        Setting(evil, "string", required, False, evil, (), evil),
        Setting("a", "string", required, False, None, (short,), ""),
        Setting("b", "object", required, False, {"k": evil}, (), ""),
        Setting(short, "string", required, True, None, (), ""),
    )
    about = About("tap-x", "1", (), settings)
    file.write_text("pipelines:\n")
    append_pipeline(file, "new", Entry("tap-x", about, prefix="t", bucket="lake", select=[evil], name="new").text())
    names = [name for name in os.environ if name.startswith("T_")]
    environ = dict.fromkeys([*names, *re.findall(r"\$\{(T_\w+)\}", file.read_text())], "v")
    source = load(file, environ).pipeline("new").source
    kept = {evil: evil, "a": "v", "b": {"k": evil}, short: "v"} if required else {}
    assert (source.config, source.select) == (kept, [evil])
    assert not (tmp_path / "started").exists()
    lines = "\n".join(Entry("tap-x", about, prefix="t").all_settings())
    assert (yaml.safe_load(lines) or {}).keys() == kept.keys()
