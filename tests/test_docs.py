"""The documentation is true: what it tells people to type is typed here, and every name in it exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic_core import PydanticUndefined
from target_bridge import TargetBridge

from bridge.cli import cli
from bridge.load.result import Counts, Result
from bridge.settings.load import load, parse_duration, parse_size
from bridge.settings.options import Keys
from bridge.settings.values.section import Section, section_of

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCS = [ROOT / "README.md", ARCHITECTURE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_SOURCES = {"mysql.md", "postgres.md", "rest-api.md"}
"""Pages that need a database or a tap from PyPI: `make taps` types what they say, in tests/e2e/test_source_docs.py."""
REFERENCE = (ROOT / "docs" / "reference.md").read_text()

EVERYWHERE = {"--quiet", "-q", "--verbose", "-v", "--log-format"}

_FENCE = re.compile(r"^```(?P<language>\w+)(?P<marks>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'(\w+)="([^"]*)"')
# What differs from run to run: ids, figures with a fraction, and the rate made of them.
_DRIFT = (
    (r"\d{8}T\d{6}Z-\w{4}", "RUN"),
    (r"[\d,]+ records/s", "N records/s"),
    (r"\d+\.\d+", "N.N"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ", "TIME"),
    (r"\s+", " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `marks`: `file` names the file it is, `exit` what its commands end with, `skip` why not here.

    `folder` begins a new folder, `needs` says what a machine must have to type it.
    """

    language: str
    marks: dict[str, str]
    text: str

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what follows each `$ `, and the output shown below it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().splitlines()
            yield command, shown


def blocks(path: Path) -> list[Block]:
    """The document's fenced blocks, in order."""
    found = _FENCE.finditer(path.read_text())
    return [Block(match["language"], dict(_MARK.findall(match["marks"])), match["text"]) for match in found]


def section(heading: str) -> str:
    """The reference's text below a heading, up to the next one of that depth or above."""
    depth = heading.index(" ")
    text = REFERENCE.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{depth}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """The first cell of each table row, as far as it is code."""
    return re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)


def names(text: str) -> set[str]:
    """What stands in the first cells, code by code."""
    return {code for cell in first_cells(text) for code in re.findall(r"`([^`]+)`", cell)}


def plain(line: str) -> str:
    """The line without what differs from run to run."""
    for pattern, replacement in _DRIFT:
        line = re.sub(pattern, replacement, line)
    return line.strip()


def type_in(folder: Path, words: str | list[str], code: int = 0, environ: Mapping[str, str] | None = None) -> str:
    """Type a command, or run a program, in the folder; fail unless it exits so; return what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SINGER_BRIDGE_")}
    clean |= environ or {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        shell=isinstance(words, str),
        cwd=folder,
        env=clean | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, f"$ {words}\n{done.stdout}"
    return done.stdout


def check_output(command: str, shown: list[str], printed: str) -> None:
    """Every line shown was printed, in this order; a line `...` stands for any lines."""
    lines = iter([plain(line) for line in printed.splitlines()])
    for wanted in filter(None, map(plain, shown)):
        assert wanted == "..." or wanted in lines, f"$ {command}\nthe document shows: {wanted}\n{printed}"


def type_page(path: Path, folder: Path, environ: Mapping[str, str] | None = None, *, has: Collection[str] = ()) -> None:
    """Type a document's commands in a folder, from top to bottom; fail where one does not print what is shown.

    A block that `needs` something is typed if the machine `has` it. From one that is marked with a `folder` on, all is
    typed in a new folder of that name.
    """
    top = folder
    for block in blocks(path):
        if name := block.marks.get("folder"):
            folder = top / name
            folder.mkdir()
        needed = block.marks.get("needs", "")
        if reason := block.marks.get("skip", "" if not needed or needed in has else needed):
            print(f"not run ({reason}): {block.text.splitlines()[0]}")
        elif name := block.marks.get("file"):
            (folder / name).write_text(block.text)
        elif block.language == "console":
            for command, shown in block.commands():
                printed = type_in(folder, command, int(block.marks.get("exit", "0")), environ)
                print(f"$ {command}\n{printed}")
                check_output(command, shown, printed)
        elif block.language == "python":
            type_in(folder, [sys.executable, "-c", block.text], environ=environ)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", [page for page in DOCS if page.name not in OF_SOURCES], ids=lambda path: path.name)
def test_what_a_document_tells_to_type_works(path: Path, tmp_path: Path) -> None:
    """A reader who types a document's commands in an empty folder, from top to bottom, sees what it shows."""
    type_page(path, tmp_path)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_example_settings_are_accepted(path: Path, tmp_path: Path) -> None:
    """Every pipeline that a document shows is one that the settings accept."""
    secrets = dict.fromkeys(("API_TOKEN", "PGPASSWORD", "READER_PASSWORD"), "secret")
    for block in blocks(path):
        if block.language == "yaml":
            (tmp_path / "bridge.yaml").write_text(block.text)
            for env in load(tmp_path / "bridge.yaml", {}).environments or (None,):
                loaded = load(tmp_path / "bridge.yaml", secrets, env)
                assert list(loaded.pipelines.values())


@pytest.mark.parametrize("path", [*DOCS, ROOT / "tests/crash/README.md"], ids=lambda path: "/".join(path.parts[-2:]))
def test_links_lead_somewhere(path: Path) -> None:
    """A link inside the repository names a file, and a heading, that exist."""
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", path.read_text()):
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target


def below(kind: type[Section], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    """Every section inside a section, with what stands before its keys."""
    for key, field in kind.model_fields.items():
        if inner := section_of(field.annotation):
            yield f"{prefix}{key}." + ("GLOB." if "dict" in str(field.annotation) else ""), inner


def settings(kind: type[Section], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key with its default, dotted."""
    for key, field in kind.model_fields.items():
        if not section_of(field.annotation):
            yield prefix + key, field.get_default(call_default_factory=True)
    for inner_prefix, inner in below(kind, prefix):
        yield from settings(inner, inner_prefix)


def written(default: Any) -> str:
    """A default as the reference writes it."""
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_every_setting_is_documented_with_its_default() -> None:
    """The reference has exactly the keys that the settings accept, each with its real default."""
    rows = re.findall(r"^\| `(\w+(?:\.\w+)+)` \| [^|]+ \| ([^|]+) \|", section("## bridge.yaml"), re.MULTILINE)
    documented = dict(rows)
    accepted = dict(settings(Keys))
    assert documented.keys() == accepted.keys()
    for key, default in accepted.items():
        shown: Any = documented[key]
        if isinstance(default, timedelta):
            assert parse_duration(shown.strip("`")) == default, key
        elif "iB" in shown:
            assert parse_size(shown.strip("`")) == default, key
        else:
            assert shown == written(default), key


def tables(text: str) -> list[str]:
    """The tables of a text."""
    return re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)


def commands() -> dict[str, click.Command]:
    """Every verb, by the words that are typed."""
    found: dict[str, click.Command] = {}
    for verb in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), verb)
        assert command
        inner = command.commands.items() if isinstance(command, click.Group) else {"": command}.items()
        found |= {f"{verb} {word}".strip(): each for word, each in inner}
    return found


def flags(command: click.Command) -> set[str]:
    """The flags that `--help` shows, and `[NAME]`; not those that every verb has."""
    found = {opt for parameter in command.params if isinstance(parameter, click.Option) for opt in parameter.opts}
    arguments = {parameter.name for parameter in command.params if isinstance(parameter, click.Argument)}
    return found - EVERYWHERE | ({"[NAME]"} if arguments & {"name", "names"} else set())


def test_every_verb_and_flag_is_documented() -> None:
    """The reference has exactly the verbs, arguments and flags that the command line has."""
    text = section("## Commands")
    headings = {heading.removeprefix("singer-bridge ") for heading in re.findall(r"^### (.+)$", text, re.MULTILINE)}
    assert headings == commands().keys()
    everywhere, choosing = ({name.split()[0] for name in names(table)} for table in tables(text.split("\n### ")[0]))
    assert everywhere == EVERYWHERE
    for words, command in commands().items():
        documented = {name.split()[0] for name in names(section(f"### singer-bridge {words}"))}
        assert documented == flags(command) - (choosing if "[NAME]" in flags(command) else set()), words
        assert "[NAME]" not in flags(command) or choosing <= flags(command), words


def test_the_json_object_is_documented() -> None:
    """The reference has exactly the keys that `run --json` prints."""
    run, stream = tables(section("## The JSON object"))
    assert names(run) == Result("id", "name").to_json().keys()
    assert names(stream) == Counts("upsert", "as set", merged={"rows": 1}).to_json().keys()


def test_every_setting_of_the_target_is_documented() -> None:
    """The target's table has exactly the settings that `--about` has."""
    TargetBridge.append_builtin_config(schema := dict(TargetBridge.config_jsonschema))
    documented = tables((ROOT / "docs/target.md").read_text())[-1]
    codes = {
        code
        for cell in re.findall(r"^\| (`[^|]*) \|", documented, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", cell)
    }
    aliases = set(re.findall(r"also called `(\w+)`", documented))
    assert codes | aliases | {"batch_config"} == schema["properties"].keys()


def layout() -> set[str]:
    """The paths that ARCHITECTURE.md lists as rooms."""
    text = ARCHITECTURE.read_text().split("\n## Rooms\n")[1]
    listed, above = set(), ""
    for indent, name in re.findall(r"^( *)([\w.]+/?)(?: |$)", _FENCE.findall(text)[0][2], re.MULTILINE):
        above = above if indent else name
        listed.add(above + name if indent else name)
    return listed


def test_the_layout_is_the_repository() -> None:
    """ARCHITECTURE.md lists every folder of code, and nothing that does not exist."""
    tops = [ROOT / top for top in ("bridge", "taps", "targets", "tests")]
    folders = [*tops, *(folder for top in tops for folder in top.iterdir())]
    of_code = {f"{folder.relative_to(ROOT)}/" for folder in folders if any(folder.rglob("*.py"))}
    assert of_code - layout() == set()
    assert [path for path in layout() if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", [ARCHITECTURE, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_a_named_file_exists(path: Path) -> None:
    """Each path in code marks that a page for developers names is in the repository; `room/` alone is bridge's."""
    named = re.findall(r"`([\w.]+/[\w./]*)`", path.read_text())
    assert named
    assert [name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "bridge"))] == []
